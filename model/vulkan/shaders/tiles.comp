#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
// y = (W·x + bias)·scale for many rows x: a work group has 64 rows of W and 16·RX rows of x. The order of a sum is that of the units,
// whatever RX is.
layout(constant_id = 1) const uint RX = 1;
layout(local_size_x = 256) in;
const uint DEPTH = 32; // columns at a time: four units
shared float ws[DEPTH * 64];
shared float xs[DEPTH * 16 * RX];

void main() {
    uint lane = gl_LocalInvocationID.x, tx = lane & 15, ty = lane >> 4;
    uint first = gl_WorkGroupID.x * 64;
    Work of = work(gl_WorkGroupID.y, 16 * RX);
    if (of.first >= of.end) return;
    uint units = (cols + 7) / 8, row = lane >> 2, part = lane & 3;
    bool mine = row < 16 * RX && of.first + row < of.end;
    uint at = mine ? inputOf(outputOf(of.first + row)) * cols : 0;
    float acc[4 * RX];
    for (uint i = 0; i < 4 * RX; i++) acc[i] = 0;
    for (uint u0 = 0; u0 < units; u0 += 4) {
        uint u = u0 + part, c0, c1;
        columns(u, c0, c1);
        vec4 a = vec4(0), b = vec4(0);
        if (u < units && first + row < rows) values(of.w, (first + row) * stride, u, a, b);
        for (uint i = 0; i < 4; i++) {
            ws[(part * 8 + i) * 64 + row] = a[i];
            ws[(part * 8 + 4 + i) * 64 + row] = b[i];
        }
        if (row < 16 * RX) {
            a = vec4(0);
            b = vec4(0);
            if (u < units && mine) {
                a = four(x, at, c0, cols);
                b = four(x, at, c1, cols);
            }
            for (uint i = 0; i < 4; i++) {
                xs[(part * 8 + i) * 16 * RX + row] = a[i];
                xs[(part * 8 + 4 + i) * 16 * RX + row] = b[i];
            }
        }
        barrier();
        for (uint k = 0; k < DEPTH; k++) {
            float wv[4], xv[RX];
            for (uint i = 0; i < 4; i++) wv[i] = ws[k * 64 + tx + 16 * i];
            for (uint j = 0; j < RX; j++) xv[j] = xs[k * 16 * RX + ty + 16 * j];
            for (uint i = 0; i < 4; i++)
                for (uint j = 0; j < RX; j++) acc[i * RX + j] = fma(wv[i], xv[j], acc[i * RX + j]);
        }
        barrier();
    }
    for (uint i = 0; i < 4; i++)
        for (uint j = 0; j < RX; j++) {
            uint r = of.first + ty + 16 * j, o = first + tx + 16 * i;
            if (r < of.end && o < rows) put(of.bias, outputOf(r), o, acc[i * RX + j]);
        }
}
