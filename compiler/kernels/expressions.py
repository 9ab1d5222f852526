"""Scalar formulas as TIR expressions, free of library calls so that the kernel library needs no libm.

In:  TIR expressions.
Out: TIR expressions that vectorize lane by lane.
"""

from __future__ import annotations

from tvm.script import tirx as T

LOG2_E = 1.4426950408889634
# ln 2 in two parts, so that x - n·ln 2 keeps its low bits (Cephes expf).
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
EXP_COEFFICIENTS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
EXP_LOWEST, EXP_HIGHEST = -87.0, 88.0
LOG_COEFFICIENTS = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
SQRT_HALF = 0.70710678118654752440


def half_at(byte, offset: int):
    """The IEEE fp16 number whose low byte is byte(offset), as fp32; exact for every finite value.

    Shifting the 15 magnitude bits into fp32 position and multiplying by 2^112 corrects the exponent bias and
    normalises subnormals in one step; it needs no fp16 instruction, which x86-64 lacks before F16C.
    """
    bits = T.Cast("uint32", byte(offset)) | (T.Cast("uint32", byte(offset + 1)) << T.uint32(8))
    magnitude = T.reinterpret("float32", (bits & T.uint32(0x7FFF)) << T.uint32(13)) * T.float32(2.0**112)
    return T.Select((bits & T.uint32(0x8000)) != T.uint32(0), T.float32(0) - magnitude, magnitude)


def exp(x):
    """e^x in fp32, error below 2 units in the last place on [-87, 88]; arguments outside are clamped (Cephes expf)."""
    x = T.max(T.min(x, T.float32(EXP_HIGHEST)), T.float32(EXP_LOWEST))
    n = T.floor(x * T.float32(LOG2_E) + T.float32(0.5))
    r = x - n * T.float32(LN2_HIGH) - n * T.float32(LN2_LOW)
    poly = T.float32(EXP_COEFFICIENTS[0])
    for c in EXP_COEFFICIENTS[1:]:
        poly = poly * r + T.float32(c)
    scale = T.reinterpret("float32", (T.Cast("int32", n) + T.int32(127)) << T.int32(23))
    return (poly * r * r + r + T.float32(1)) * scale


def log(x):
    """ln x in fp32 for positive normal x, error below 2 units in the last place (Cephes logf)."""
    bits = T.reinterpret("int32", x)
    mantissa = T.reinterpret("float32", (bits & T.int32(0x7FFFFF)) | T.int32(0x3F000000))
    exponent = T.Cast("float32", (bits >> T.int32(23)) - T.int32(126))
    small = mantissa < T.float32(SQRT_HALF)
    r = T.Select(small, mantissa + mantissa, mantissa) - T.float32(1)
    exponent = T.Select(small, exponent - T.float32(1), exponent)
    poly = T.float32(LOG_COEFFICIENTS[0])
    for c in LOG_COEFFICIENTS[1:]:
        poly = poly * r + T.float32(c)
    tail = poly * r * r * r + exponent * T.float32(LN2_LOW) - T.float32(0.5) * r * r
    return r + tail + exponent * T.float32(LN2_HIGH)


def sigmoid(x):
    """1 / (1 + e^-x)."""
    return T.float32(1) / (T.float32(1) + exp(T.float32(0) - x))
