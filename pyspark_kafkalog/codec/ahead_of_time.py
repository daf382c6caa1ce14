"""Kernels as object code for the compiled library, be it for another machine.

numba makes LLVM's code of each kernel, which is optimized here, for a named CPU. Each kernel gets a function
that takes what :mod:`.library` passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.np.arrayobj import populate_array

from pyspark_kafkalog.codec.jit import njit, numba_signature
from pyspark_kafkalog.codec.kernel import Kernel
from pyspark_kafkalog.codec.library import (
    DATA,
    DIMENSIONS,
    DTYPE,
    ELEMENTS,
    FAILED,
    FLAGS,
    NDIM,
    REFUSED,
    TYPE,
    symbol,
)
from pyspark_kafkalog.codec.signature import ArrayParameter, Parameter

_INT, _WORD = ir.IntType(32), ir.IntType(64)
_C_CONTIGUOUS, _ALIGNED, _WRITABLE = 0x1, 0x100, 0x400
"""Flags of numpy's arrays: NPY_ARRAY_C_CONTIGUOUS and so on."""


def object_code(kernels: Sequence[Kernel], machine: str, cpu: str) -> bytes:
    """An object file for Linux: position-independent, and in need of no function but memcpy and memset.

    numba must not optimize, which it does for the CPU that it runs on: NUMBA_OPT has to be 0 from the start.

    :param machine: ``x86_64`` or ``aarch64``.
    :param cpu: LLVM's name of the least CPU that it is to run on.
    """
    library = cpu_target.target_context.codegen().create_library("kernels")
    module = library.create_ir_module("kernels")
    symbols = {_add(module, library, kernel) for kernel in kernels}
    library.add_ir_module(module)
    with global_compiler_lock:
        library.finalize()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = f"{machine}-unknown-linux-gnu"
    target = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, opt=3, reloc="pic", codemodel="small"
    )
    code = llvm.parse_assembly(library.get_llvm_str())
    code.triple = triple
    code.data_layout = str(target.target_data)
    for part in (*code.functions, *code.global_variables):
        if not part.is_declaration and part.name not in symbols:
            part.linkage = "internal"
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(target, tuning)
    passes.getModulePassManager().run(code, passes)
    object_file: bytes = target.emit_object(code)
    return object_file


def _add(module: ir.Module, library: Any, kernel: Kernel) -> str:
    """Add a kernel to ``library``, and the function that calls it to ``module``; returns its name."""
    ours, results = kernel.signature, kernel.signature.results
    signature = numba_signature(ours)
    dispatcher = njit(signature, nogil=True)(kernel.function)
    (compiled,) = dispatcher.overloads.values()
    library.add_linking_library(compiled.library)
    name = symbol(kernel.function, ours)
    function = ir.Function(module, ir.FunctionType(_INT, [_WORD.as_pointer()]), name)
    builder = ir.IRBuilder(function.append_basic_block())
    words = _Words(builder, function.args[0])
    for place, parameter in enumerate(ours.flat):
        if isinstance(parameter, ArrayParameter):
            with builder.if_then(words.is_wrong(place, parameter), likely=False):
                builder.ret(_INT(REFUSED))
    places = iter(range(len(ours.flat) + results))
    arguments = [words.argument(places, *each) for each in zip(ours.parameters, signature.args, strict=True)]
    context = cpu_target.target_context
    status, result = context.call_internal_no_propagate(builder, compiled.fndesc, signature, arguments)
    for number, place in enumerate(places):
        value = result if results == 1 else builder.extract_value(result, number)
        builder.store(value, words.address(len(ELEMENTS) + 1 + place))
    builder.ret(builder.select(status.is_error, _INT(FAILED), _INT(0)))
    return name


class _Words:
    """The words of a call. A place counts the parameters, or the results behind them."""

    def __init__(self, builder: ir.IRBuilder, address: Any) -> None:
        self._builder = builder
        self._address = address

    def address(self, number: int) -> Any:
        return self._builder.gep(self._address, [_WORD(number)])

    def word(self, place: int) -> Any:
        return self._builder.load(self.address(len(ELEMENTS) + 1 + place))

    def field(self, place: int, offset: int, kind: ir.Type) -> Any:
        """A field of the array at that place."""
        builder = self._builder
        address = builder.add(self.word(place), _WORD(offset))
        return builder.load(builder.inttoptr(address, kind.as_pointer()))

    def is_wrong(self, place: int, parameter: ArrayParameter) -> Any:
        """Whether the object there isn't an array with these elements, dimensions and layout.

        Of an object that isn't an array, only the type is read.
        """
        builder = self._builder
        ndarray = builder.load(self.address(0))
        is_no_array = builder.icmp_unsigned("!=", self.field(place, TYPE, _WORD), ndarray)
        begin = builder.block
        with builder.if_then(builder.not_(is_no_array)):
            elements = builder.load(self.address(1 + ELEMENTS.index(parameter.elements)))
            flags = _INT(_C_CONTIGUOUS | _ALIGNED | (_WRITABLE if parameter.writable else 0))
            differs = builder.or_(
                builder.icmp_unsigned("!=", self.field(place, DTYPE, _WORD), elements),
                builder.or_(
                    builder.icmp_unsigned("!=", self.field(place, NDIM, _INT), _INT(parameter.dimensions)),
                    builder.icmp_unsigned("!=", builder.and_(self.field(place, FLAGS, _INT), flags), flags),
                ),
            )
            is_array = builder.block
        wrong = builder.phi(ir.IntType(1))
        wrong.add_incoming(ir.IntType(1)(1), begin)
        wrong.add_incoming(differs, is_array)
        return wrong

    def argument(self, places: Iterator[int], parameter: Parameter, kind: Any) -> Any:
        """The argument at the next places, as numba passes it."""
        builder, context = self._builder, cpu_target.target_context
        if isinstance(parameter, tuple):
            parts = zip(parameter, kind.types, strict=True)
            return context.make_tuple(builder, kind, [self.argument(places, *part) for part in parts])
        place = next(places)
        if not isinstance(parameter, ArrayParameter):
            return self.word(place)
        made = context.make_array(kind)(context, builder)
        lengths = self.field(place, DIMENSIONS, _WORD.as_pointer())
        shape = [builder.load(builder.gep(lengths, [_WORD(axis)])) for axis in range(parameter.dimensions)]
        size = kind.dtype.bitwidth // 8
        strides: list[Any] = [_WORD(size)]
        for length in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        populate_array(made, self.field(place, DATA, made.data.type), shape, strides, size, None)
        return made._getvalue()
