#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// Of each row the place of the largest number, the first of equals, and 1 if all are finite.
layout(local_size_x = 256) in;
layout(push_constant) uniform Push {
    Floats x;  // [n, width]
    Words y;   // [n, 2]
    uint width;
};
shared float most[256];
shared uint place[256];
shared uint finite[256];

void main() {
    uint row = gl_WorkGroupID.x, lane = gl_LocalInvocationID.x, at = row * width, best = 0xffffffffu, good = 1;
    float top = NEVER;
    for (uint i = lane; i < width; i += 256) {
        float v = x.v[at + i];
        if ((floatBitsToUint(v) & 0x7f800000u) == 0x7f800000u) good = 0;
        if (v > top || best == 0xffffffffu) {
            top = v;
            best = i;
        }
    }
    most[lane] = top;
    place[lane] = best;
    finite[lane] = good;
    for (uint half_ = 128; half_ > 0; half_ /= 2) {
        barrier();
        if (lane < half_) {
            float v = most[lane + half_];
            uint p = place[lane + half_];
            if (p != 0xffffffffu && (v > most[lane] || v == most[lane] && p < place[lane])) {
                most[lane] = v;
                place[lane] = p;
            }
            finite[lane] &= finite[lane + half_];
        }
    }
    if (lane == 0) {
        y.v[2 * row] = place[0];
        y.v[2 * row + 1] = finite[0];
    }
}
