#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "client/python-engine/native/engine.h"

namespace {

namespace nb = nanobind;
using attention::python::PythonEngine;

constexpr char kAttend[] =
    R"(Attention of the queries to the keys: a Result with .output.

As attention_client.Client.attend, with its options, results and exceptions, but
computed in this process. Arrays of numpy and PyTorch's and JAX's of the host are
read where they are, whatever their strides; float64 is computed as float32.
Nobody may change them while the call runs.

out: where the output goes in place of a new array: of numpy or PyTorch, of the
output's datatype and shape, in rows without gaps.
timeout: seconds.)";

}  // namespace

NB_MODULE(_native, module) {
  // An engine that lives as long as the process is no mistake.
  nb::set_leak_warnings(false);
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the macro's
  nb::class_<PythonEngine>(module, "Engine")
      .def(nb::init<int64_t, std::string>(), nb::arg("threads"),
           nb::arg("backend"))
      .def("attend", &PythonEngine::Attend, nb::arg("query"), nb::arg("key"),
           nb::arg("value"), nb::kw_only(), nb::arg("out") = nb::none(),
           nb::arg("timeout") = nb::none(), nb::arg("options"), kAttend)
      .def("facts", &PythonEngine::Info)
      .def("close", &PythonEngine::Close,
           "Ends the threads once no call runs; calls are refused from then "
           "on.");
}
