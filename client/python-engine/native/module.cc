#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "client/python-engine/native/engine.h"
#include "client/python-engine/native/store.h"

namespace {

namespace nb = nanobind;
using attention::python::PythonEngine;
using attention::python::PythonStore;

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): the macro's
NB_MODULE(_native, module) {
  // An engine that lives as long as the process is no mistake.
  nb::set_leak_warnings(false);
  nb::class_<PythonEngine>(module, "Engine")
      .def(nb::init<nb::handle, nb::handle>(), nb::arg("threads").none(),
           nb::arg("backend").none())
      .def("attend", &PythonEngine::Attend, nb::arg("query").none(),
           nb::arg("key").none(), nb::arg("value").none(), nb::kw_only(),
           nb::arg("out") = nb::none(), nb::arg("timeout") = nb::none(),
           nb::arg("options"))
      // By place alone: what has such a name beside them is an option, of which
      // there is none.
      .def("attend_sequences", &PythonEngine::AttendSequences, nb::arg(),
           nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(),
           nb::kw_only(), nb::arg("timeout") = nb::none(), nb::arg("options"))
      .def("facts", &PythonEngine::Info)
      .def("close", &PythonEngine::Close);
  nb::class_<PythonStore>(module, "Store")
      .def(nb::init<nb::handle>(), nb::arg("memory_limit").none())
      .def_prop_ro("incarnation", &PythonStore::incarnation)
      .def("create", &PythonStore::Create)
      .def("append", &PythonStore::Append, nb::arg("name"), nb::arg("layer"),
           nb::arg("position").none(), nb::arg("key"), nb::arg("value"),
           nb::arg("key_scale").none(), nb::arg("value_scale").none())
      .def("truncate", &PythonStore::Truncate)
      .def("fork", &PythonStore::Fork, nb::arg("name"),
           nb::arg("length").none(), nb::arg("new_name"),
           nb::arg("label").none(), nb::arg("idle_limit_ms").none())
      .def("describe", &PythonStore::Describe)
      .def("list_all", &PythonStore::List)
      .def("delete", &PythonStore::Delete)
      .def("export", &PythonStore::Export, nb::arg("name"), nb::arg("path"),
           nb::arg("timeout").none())
      .def("import_", &PythonStore::Import, nb::arg("path"), nb::arg("name"),
           nb::arg("label"), nb::arg("idle_limit_ms").none(),
           nb::arg("timeout").none())
      .def("close", &PythonStore::Close);
}
