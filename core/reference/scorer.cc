#include "core/reference/scorer.h"

#include <utility>
#include <variant>

namespace attention::reference {
namespace {

// scale * q.k
class DotProductScorer final : public Scorer {
 public:
  explicit DotProductScorer(double scale) : scale_(scale) {}
  void SetQueries(const Matrix& queries) override { queries_ = queries; }
  void Score(const Matrix& keys, Matrix& scores) const override {
    scores.noalias() = queries_ * keys.transpose();
    scores *= scale_;
  }

 private:
  double scale_;
  Matrix queries_;
};

// scale * q M k
class BilinearScorer final : public Scorer {
 public:
  BilinearScorer(Matrix m, double scale) : m_(std::move(m)), scale_(scale) {}
  void SetQueries(const Matrix& queries) override {
    projected_.noalias() = queries * m_;
  }
  void Score(const Matrix& keys, Matrix& scores) const override {
    scores.noalias() = projected_ * keys.transpose();
    scores *= scale_;
  }

 private:
  Matrix m_;
  double scale_;
  Matrix projected_;
};

// -|q - k|^2 / (2 sigma^2), by direct differences: nothing cancels.
class GaussianScorer final : public Scorer {
 public:
  explicit GaussianScorer(double sigma) : factor_(-0.5 / (sigma * sigma)) {}
  void SetQueries(const Matrix& queries) override { queries_ = queries; }
  void Score(const Matrix& keys, Matrix& scores) const override {
    scores.resize(queries_.rows(), keys.rows());
    for (Eigen::Index i = 0; i < queries_.rows(); ++i) {
      for (Eigen::Index j = 0; j < keys.rows(); ++j) {
        scores(i, j) = factor_ * (queries_.row(i) - keys.row(j)).squaredNorm();
      }
    }
  }

 private:
  double factor_;
  Matrix queries_;
};

// w_v . tanh(q W_q + k W_k)
class AdditiveScorer final : public Scorer {
 public:
  AdditiveScorer(Matrix w_q, Matrix w_k, Matrix w_v)
      : w_q_(std::move(w_q)), w_k_(std::move(w_k)), w_v_(std::move(w_v)) {}
  void SetQueries(const Matrix& queries) override {
    projected_.noalias() = queries * w_q_;
  }
  void Score(const Matrix& keys, Matrix& scores) const override {
    const Matrix projected_keys = keys * w_k_;
    scores.resize(projected_.rows(), keys.rows());
    for (Eigen::Index i = 0; i < projected_.rows(); ++i) {
      for (Eigen::Index j = 0; j < keys.rows(); ++j) {
        scores(i, j) = (projected_.row(i) + projected_keys.row(j))
                           .array()
                           .tanh()
                           .matrix()
                           .dot(w_v_.row(0));
      }
    }
  }

 private:
  Matrix w_q_;
  Matrix w_k_;
  Matrix w_v_;  // (1, h)
  Matrix projected_;
};

// (Hq, h) as (Hq, 1, h), so that one head's part is a matrix.
TensorView AsRow(TensorView view) {
  view.shape.insert(view.shape.begin() + 1, 1);
  view.strides.insert(view.strides.begin() + 1, 0);
  return view;
}

struct Make {
  const ValidatedProblem& problem;
  int64_t head;

  std::unique_ptr<Scorer> operator()(const ScaledDotProduct&) const {
    return std::make_unique<DotProductScorer>(problem.scale);
  }
  std::unique_ptr<Scorer> operator()(const Additive& additive) const {
    return std::make_unique<AdditiveScorer>(
        LoadParameter(additive.w_q, head), LoadParameter(additive.w_k, head),
        LoadParameter(AsRow(additive.w_v), head));
  }
  std::unique_ptr<Scorer> operator()(const Gaussian& gaussian) const {
    return std::make_unique<GaussianScorer>(gaussian.sigma);
  }
  std::unique_ptr<Scorer> operator()(const Bilinear& bilinear) const {
    return std::make_unique<BilinearScorer>(LoadParameter(bilinear.m, head),
                                            problem.scale);
  }
};

}  // namespace

std::unique_ptr<Scorer> MakeScorer(const ValidatedProblem& problem,
                                   int64_t query_head) {
  return std::visit(Make{problem, query_head}, problem.scoring);
}

}  // namespace attention::reference
