#include "tests/sim/aten/kernels.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/core/memory.h"

namespace gpusim::aten {
namespace {

// Larger tensors are data: nobody branches on each of their elements.
constexpr int64_t kMostElements = 8192;

// Has all digits of an int64.
using Number = long double;

struct Type {
  std::string_view name;  // as demangled
  int8_t scalar_type;     // c10::ScalarType
  size_t bytes;
  Number (*load)(const char*);
  void (*store)(Number, char*);
};

template <typename Value>
Number Load(const char* at) {
  Value value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<Number>(value);
}
template <>
Number Load<bool>(const char* at) {
  return *at != 0 ? 1 : 0;
}
template <typename Value>
void Store(Number number, char* at) {
  const auto value = static_cast<Value>(number);
  std::memcpy(at, &value, sizeof value);
}
template <>
void Store<bool>(Number number, char* at) {
  *at = number != 0 ? 1 : 0;
}

template <typename Value>
constexpr Type TypeFor(std::string_view name, int8_t scalar_type) {
  return {name, scalar_type, sizeof(Value), Load<Value>, Store<Value>};
}
constexpr Type kTypes[] = {
    TypeFor<uint8_t>("unsigned char", 0), TypeFor<int8_t>("signed char", 1), TypeFor<int16_t>("short", 2),
    TypeFor<int32_t>("int", 3),           TypeFor<int64_t>("long", 4),       TypeFor<float>("float", 6),
    TypeFor<double>("double", 7),         TypeFor<bool>("bool", 11),
};
constexpr const Type& kBool = kTypes[7];

const Type* TypeNamed(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [name](const Type& type) { return type.name == name; });
  return found != std::end(kTypes) ? found : nullptr;
}

const Type* TypeOf(int8_t scalar_type) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [scalar_type](const Type& type) {
    return type.scalar_type == scalar_type;
  });
  return found != std::end(kTypes) ? found : nullptr;
}

int64_t Whole(Number number) { return static_cast<int64_t>(number); }

// `member`: the functor's, other than an operand.
using Operation = Number (*)(Number a, Number b, Number member);

// What a functor holds, in this order.
enum class Members { kNone, kChoice, kOperand, kOperandAndFactor, kFactor };

struct Functor {
  std::string_view name;  // in the kernel's, before the type's
  Operation run;
  Members members;
  bool compares;  // the result is a bool
};
Number Order(Number a, Number b, Number choice) {
  return Number(choice == 0 ? a >= b : choice == 1 ? a > b : choice == 2 ? a <= b : a < b);
}
Number Add(Number a, Number b, Number factor) { return a + factor * b; }

constexpr Functor kFunctors[] = {
    {"FillFunctor<", [](Number, Number b, Number) { return b; }, Members::kOperand, false},
    {"CUDAFunctor_add<", Add, Members::kFactor, false},
    {"CUDAFunctorOnSelf_add<", Add, Members::kOperandAndFactor, false},
    {"CUDAFunctorOnOther_add<", Add, Members::kOperandAndFactor, false},
    {"MulFunctor<", [](Number a, Number b, Number) { return a * b; }, Members::kNone, false},
    {"CompareEqFunctor<", [](Number a, Number b, Number choice) { return Number((a == b) == (choice == 0)); },
     Members::kChoice, true},
    {"CompareFunctor<", Order, Members::kChoice, true},
    {"compare_scalar_kernel<", Order, Members::kChoice, true},
    {"BitwiseAndFunctor<", [](Number a, Number b, Number) { return Number(Whole(a) & Whole(b)); },
     Members::kNone, false},
    {"BitwiseOrFunctor<", [](Number a, Number b, Number) { return Number(Whole(a) | Whole(b)); },
     Members::kNone, false},
    {"BitwiseXorFunctor<", [](Number a, Number b, Number) { return Number(Whole(a) ^ Whole(b)); },
     Members::kNone, false},
};
// Lambdas of a function; their parameter names the type.
constexpr Functor kLambdas[] = {
    {"direct_copy_kernel_cuda(", [](Number a, Number, Number) { return a; }, Members::kNone, false},
    {"logical_not_kernel_cuda(", [](Number a, Number, Number) { return Number(a == 0); }, Members::kNone,
     true},
    {"bitwise_not_kernel_cuda(at::TensorIteratorBase&)::{lambda(bool)",
     [](Number a, Number, Number) { return Number(a == 0); }, Members::kNone, false},
    {"logical_and_kernel_cuda(", [](Number a, Number b, Number) { return Number(a != 0 && b != 0); },
     Members::kNone, true},
    {"logical_or_kernel_cuda(", [](Number a, Number b, Number) { return Number(a != 0 || b != 0); },
     Members::kNone, true},
    {"bitwise_not_kernel_cuda(", [](Number a, Number, Number) { return Number(~Whole(a)); }, Members::kNone,
     false},
};

using Reduction = Number (*)(Number a, Number b);
struct Reducer {
  std::string_view name;
  Reduction run;
};
constexpr Reducer kReducers[] = {
    {"sum_functor<", [](Number a, Number b) { return a + b; }},
    {"MaxNanFunctor<", [](Number a, Number b) { return std::max(a, b); }},
    {"MinNanFunctor<", [](Number a, Number b) { return std::min(a, b); }},
    {"and_kernel_cuda(", [](Number a, Number b) { return Number(a != 0 && b != 0); }},
    {"or_kernel_cuda(", [](Number a, Number b) { return Number(a != 0 || b != 0); }},
};

// What a kernel's name says.
struct Recipe {
  enum class Kind { kNone, kElementwise, kReduction, kConcatenation } kind = Kind::kNone;
  const Functor* functor = nullptr;
  const Type* type = nullptr;  // that the functor computes in; of a reduction's input
  const Type* out = nullptr;   // of a reduction's output
  const Type* accumulated = nullptr;
  size_t inputs = 0;          // tensors
  bool scalar_first = false;  // of two operands one is a number in the functor
  bool has_scalar = false;    // behind the functor's members
  bool casts = false;         // the tensors' types are arguments
  Reduction reduction = nullptr;
  size_t element_bytes = 0;  // of what is concatenated
  size_t batch = 0;          // tensors that one launch can concatenate
};

std::string Demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string demangled = status == 0 ? text : "";
  std::free(text);
  return demangled;
}

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// What comes after the first `part`, up to one of `ends`.
std::string_view After(std::string_view text, std::string_view part, std::string_view ends) {
  const size_t at = text.find(part);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + part.size());
  return text.substr(0, text.find_first_of(ends));
}

size_t NumberIn(std::string_view text) { return std::strtoull(std::string(text).c_str(), nullptr, 10); }

Recipe ElementwiseRecipe(std::string_view arguments) {
  Recipe recipe;
  const std::string_view functor = arguments.substr(0, arguments.find("std::array<char*"));
  const size_t tensors = NumberIn(After(arguments, "std::array<char*, ", "u>"));
  for (const Functor& known : kFunctors) {
    if (!Has(functor, known.name)) continue;
    recipe.functor = &known;
    recipe.type = TypeNamed(After(functor, known.name, ">"));
    break;
  }
  for (const Functor& known : kLambdas) {
    const size_t at = functor.rfind("{lambda(");
    if (recipe.functor != nullptr || !Has(functor, known.name) || at == std::string_view::npos) continue;
    recipe.functor = &known;
    recipe.type = TypeNamed(After(functor.substr(at), "{lambda(", ",)"));
  }
  if (recipe.functor == nullptr || recipe.type == nullptr || tensors == 0 || tensors > 3) return {};
  recipe.inputs = tensors - 1;
  recipe.scalar_first = Has(functor, "AUnaryFunctor<") || Has(functor, "OnOther_");
  recipe.has_scalar = Has(functor, "UnaryFunctor<") || Has(functor, "compare_scalar_kernel<");
  recipe.casts = Has(arguments, "LoadWithCast<");
  if (recipe.casts && Has(arguments, ", OffsetCalculator<")) return {};
  recipe.kind = Recipe::Kind::kElementwise;
  return recipe;
}

Recipe ReductionRecipe(std::string_view arguments) {
  Recipe recipe;
  for (const Reducer& known : kReducers) {
    if (Has(arguments, known.name)) recipe.reduction = known.run;
  }
  // ReduceOp<input, func_wrapper_t<output, functor>, index, output, ...>; what is accumulated is the
  // functor's parameter.
  recipe.type = TypeNamed(After(arguments, "ReduceOp<", ","));
  recipe.out = TypeNamed(After(arguments, "func_wrapper_t<", ","));
  const size_t lambda = arguments.rfind("{lambda(");
  const std::string_view parameter =
      lambda == std::string_view::npos ? "" : After(arguments.substr(lambda), "{lambda(", ",)");
  const std::string_view of_maximum = After(arguments, "NanFunctor<", ">");
  recipe.accumulated = TypeNamed(of_maximum.empty() ? parameter : of_maximum);
  const bool is_known = recipe.reduction != nullptr && recipe.type != nullptr && recipe.out != nullptr &&
                        recipe.accumulated != nullptr && Has(arguments, ">, unsigned int, ");
  if (!is_known) return {};
  recipe.kind = Recipe::Kind::kReduction;
  return recipe;
}

// <OpaqueType<bytes>, unsigned int, dimensions, tensors in a launch, ...>
Recipe ConcatenationRecipe(std::string_view arguments) {
  Recipe recipe;
  recipe.element_bytes = NumberIn(After(arguments, "OpaqueType<", "u>"));
  const std::string_view shape = After(arguments, "unsigned int, ", ">");
  recipe.batch = NumberIn(After(shape, ", ", ","));
  if (recipe.element_bytes == 0 || recipe.batch == 0 || NumberIn(shape) != 1) return {};
  recipe.kind = Recipe::Kind::kConcatenation;
  return recipe;
}

Recipe RecipeFor(const char* name) {
  if (std::strstr(name, "2at6native") == nullptr) return {};
  const std::string text = Demangled(name);
  const auto arguments = [&text](std::string_view kernel) {
    const size_t at = text.find(kernel);
    return at == std::string::npos ? std::string_view() : std::string_view(text).substr(at + kernel.size());
  };
  for (const char* kernel : {"::vectorized_elementwise_kernel<", "::unrolled_elementwise_kernel<"}) {
    if (!arguments(kernel).empty()) return ElementwiseRecipe(arguments(kernel));
  }
  if (!arguments("::reduce_kernel<").empty()) return ReductionRecipe(arguments("::reduce_kernel<"));
  if (!arguments("::CatArrayBatchedCopy").empty())
    return ConcatenationRecipe(arguments("::CatArrayBatchedCopy"));
  return {};
}

// Names are kept once for all launches.
const Recipe& RecipeOf(const char* name) {
  static auto* mutex = new std::mutex;
  static auto* recipes = new std::map<const char*, Recipe>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = recipes->find(name);
  return found != recipes->end() ? found->second : recipes->emplace(name, RecipeFor(name)).first->second;
}

bool IsAllocated(const char* address, size_t bytes, Range* range) {
  const auto at = reinterpret_cast<uint64_t>(address);
  const auto holds = [at, bytes](const Range& known) {
    return at >= known.base && at + bytes <= known.base + known.bytes;
  };
  return holds(*range) || (FindRange(at, range) && holds(*range));
}

bool IsAllocated(const char* address, size_t bytes) {
  Range range;
  return IsAllocated(address, bytes, &range);
}

template <typename Value>
Value ArgumentAt(void** arguments, size_t index) {
  Value value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

// kernel(N, functor, addresses[, two offset calculators, loader, storer])
struct Elementwise {
  const Recipe* recipe = nullptr;
  int64_t count = 0;
  Number scalar = 0;
  Number member = 0;
  std::array<char*, 3> addresses{};  // the result's first
  std::array<const Type*, 3> types{};

  void ReadFunctor(const char* functor) {
    const Type& type = *recipe->type;
    size_t size = 1;  // of one without members
    switch (recipe->functor->members) {
      case Members::kNone:
        break;
      case Members::kChoice:
        member = Load<int>(functor);
        size = sizeof(int);
        break;
      case Members::kOperand:
        scalar = type.load(functor);
        break;
      case Members::kOperandAndFactor:
        scalar = type.load(functor);
        member = type.load(functor + type.bytes);
        break;
      case Members::kFactor:
        member = type.load(functor);
        break;
    }
    if (recipe->has_scalar) scalar = type.load(functor + (size + type.bytes - 1) / type.bytes * type.bytes);
  }

  void Run() const {
    for (size_t i = 0; i <= recipe->inputs; ++i) {
      if (!IsAllocated(addresses[i], types[i]->bytes * static_cast<size_t>(count))) return;
    }
    for (int64_t at = 0; at < count; ++at) {
      std::array<Number, 2> operands{scalar, scalar};
      for (size_t i = 0; i < recipe->inputs; ++i) {
        const size_t place = i + (recipe->scalar_first ? 1 : 0);
        const Type& type = *types[i + 1];
        operands[place] = type.load(addresses[i + 1] + static_cast<size_t>(at) * type.bytes);
      }
      types[0]->store(recipe->functor->run(operands[0], operands[1], member),
                      addresses[0] + static_cast<size_t>(at) * types[0]->bytes);
    }
  }
};

std::optional<Elementwise> MakeElementwise(const Recipe& recipe, void** arguments) {
  Elementwise made;
  made.recipe = &recipe;
  made.count = ArgumentAt<int>(arguments, 0);
  if (made.count > kMostElements) return std::nullopt;
  made.ReadFunctor(static_cast<const char*>(arguments[1]));
  std::memcpy(made.addresses.data(), arguments[2], (recipe.inputs + 1) * sizeof(char*));
  for (size_t i = 0; i <= recipe.inputs; ++i) {
    made.types[i] = recipe.type;
    if (i == 0 && recipe.functor->compares) made.types[i] = &kBool;
    if (recipe.casts) {
      const auto* dtypes = static_cast<const int8_t*>(arguments[i == 0 ? 6 : 5]);
      made.types[i] = TypeOf(dtypes[i == 0 ? 0 : i - 1]);
    }
    if (made.types[i] == nullptr) return std::nullopt;
  }
  return made;
}

// ATen's structures, from Reduce.cuh and OffsetCalculator.cuh.
struct Divider {
  uint32_t divisor;
  uint32_t magic;
  uint32_t shift;
};
template <size_t kArguments>
struct Offsets {
  static constexpr int kMostDimensions = 25;
  int dimensions;
  Divider sizes[kMostDimensions];
  uint32_t strides[kMostDimensions][kArguments];

  uint32_t Of(uint32_t index, size_t argument) const {
    uint32_t offset = 0;
    for (int i = 0; i < std::min(dimensions, kMostDimensions); ++i) {
      offset += index % sizes[i].divisor * strides[i][argument];
      index /= sizes[i].divisor;
    }
    return offset;
  }
};
struct ReduceConfig {
  int element_bytes;
  int inputs;
  int outputs;
  int unused[12];
  int output_vector;
};
struct ReduceBody {  // from the configuration on
  ReduceConfig config;
  Offsets<1> input;
  Offsets<2> output;
};
struct ReduceTail {
  const char* source;
  char* destinations[2];
  void* accumulated;
  void* between_blocks;
  int* semaphores;
  int64_t base_index;
  bool accumulate;
  bool final_output;
};

struct Reduce {
  const Recipe* recipe = nullptr;
  ReduceBody body{};
  ReduceTail tail{};

  void Run() const {
    Range source;
    for (uint32_t output = 0; output < static_cast<uint32_t>(body.config.outputs); ++output) {
      char* to = tail.destinations[0] + body.output.Of(output, 0);
      const char* from = tail.source + body.output.Of(output, 1);
      Number result = 0;
      for (uint32_t input = 0; input < static_cast<uint32_t>(body.config.inputs); ++input) {
        const char* at = from + body.input.Of(input, 0);
        if (!IsAllocated(at, recipe->type->bytes, &source)) return;
        const Number value = recipe->type->load(at);
        result = input == 0 ? value : recipe->reduction(result, value);
      }
      if (!IsAllocated(to, recipe->out->bytes)) return;
      recipe->out->store(result, to);
    }
  }
};

// kernel(ReduceOp): an empty functor, what nothing is reduced to, the rest.
std::optional<Reduce> MakeReduce(const Recipe& recipe, void** arguments) {
  Reduce made;
  made.recipe = &recipe;
  const auto* at = static_cast<const char*>(arguments[0]);
  const size_t identity = recipe.accumulated->bytes;  // behind one byte, aligned
  const size_t body = (2 * identity + alignof(int) - 1) / alignof(int) * alignof(int);
  std::memcpy(&made.body, at + body, sizeof made.body);
  const size_t tail = (body + sizeof made.body + alignof(void*) - 1) / alignof(void*) * alignof(void*);
  std::memcpy(&made.tail, at + tail, sizeof made.tail);
  const ReduceConfig& config = made.body.config;
  if (config.inputs <= 0 || config.outputs <= 0 || made.tail.accumulate || !made.tail.final_output ||
      int64_t{config.inputs} * config.outputs > kMostElements)
    return std::nullopt;
  return made;
}

// kernel(output, {addresses[n], offsets[n], sizes[n], counts[n], ...}, ...), n given by the kernel's name.
struct Concatenate {
  size_t element_bytes = 0;
  char* to = nullptr;
  std::vector<const char*> from;
  std::vector<uint32_t> offsets;  // in elements
  std::vector<uint32_t> counts;

  void Run() const {
    for (size_t i = 0; i < from.size(); ++i) {
      char* at = to + offsets[i] * element_bytes;
      const size_t bytes = counts[i] * element_bytes;
      if (bytes != 0 && IsAllocated(from[i], bytes) && IsAllocated(at, bytes))
        std::memcpy(at, from[i], bytes);
    }
  }
};

std::optional<Concatenate> MakeConcatenate(const Recipe& recipe, void** arguments, size_t tensors) {
  if (tensors > recipe.batch) return std::nullopt;
  Concatenate made;
  made.element_bytes = recipe.element_bytes;
  made.to = ArgumentAt<char*>(arguments, 0);
  made.from.resize(tensors);
  made.offsets.resize(tensors);
  made.counts.resize(tensors);
  const auto* inputs = static_cast<const char*>(arguments[1]);
  const char* offsets = inputs + recipe.batch * sizeof(char*);
  const char* counts = offsets + 2 * recipe.batch * sizeof(uint32_t);
  std::memcpy(made.from.data(), inputs, tensors * sizeof(char*));
  std::memcpy(made.offsets.data(), offsets, tensors * sizeof(uint32_t));
  std::memcpy(made.counts.data(), counts, tensors * sizeof(uint32_t));
  uint64_t elements = 0;
  for (const uint32_t count : made.counts) elements += count;
  if (elements > static_cast<uint64_t>(kMostElements)) return std::nullopt;
  return made;
}

template <typename Made>
std::function<void()> Effect(std::optional<Made> made) {
  if (!made) return nullptr;
  return [what = std::make_shared<const Made>(*std::move(made))] { what->Run(); };
}

}  // namespace

std::function<void()> EffectOfKernel(const char* name, void** arguments, uint32_t grid_y) {
  if (arguments == nullptr) return nullptr;
  const Recipe& recipe = RecipeOf(name);
  switch (recipe.kind) {
    case Recipe::Kind::kNone:
      return nullptr;
    case Recipe::Kind::kElementwise:
      return Effect(MakeElementwise(recipe, arguments));
    case Recipe::Kind::kReduction:
      return Effect(MakeReduce(recipe, arguments));
    case Recipe::Kind::kConcatenation:
      return Effect(MakeConcatenate(recipe, arguments, grid_y));
  }
  return nullptr;
}

}  // namespace gpusim::aten
