#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Turns pairs of numbers of every head by the angles of their row.
layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
    Floats x;      // [n, heads, dim], changed in place
    Floats angles; // [n, 2, half]: cosines, then sines
    uint n, heads, dim, pairs, interlaced;
};

void main() {
    uint i = group() * 64 + gl_LocalInvocationID.x;
    if (i >= n * heads * pairs) return;
    uint p = i % pairs, head = i / pairs, r = head / heads;
    uint first = head * dim + (interlaced != 0 ? 2 * p : p), second = first + (interlaced != 0 ? 1 : pairs);
    float c = angles.v[r * 2 * pairs + p], s = angles.v[(r * 2 + 1) * pairs + p], a = x.v[first], b = x.v[second];
    x.v[first] = a * c - b * s;
    x.v[second] = a * s + b * c;
}
