#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The experts of each row, by the router's logits, and their weights (model.Router); a work group has a row.
layout(constant_id = 0) const uint MOST = 1;  // experts there are
layout(constant_id = 1) const uint SCORE = 0; // model.RouterScore
const uint SOFTMAX = 0, SIGMOID = 1, MIXER = 2; // of which the last takes one expert after the other
const uint NONE = 0xffffffffu;
layout(local_size_x = 64) in;
layout(push_constant) uniform Push {
    Floats logits;         // [n, MOST]
    Floats bias, factors;  // [MOST], if flags has 1, 2
    Words chosen;          // [n, most]
    Floats share;          // [n, most]
    Words tasks, pairs;    // of one row alone: see group.comp
    uint n, most, flags;   // most is 64 at most; 4: shares of a row sum to 1 before they are scaled
    float scale, least, cap, jitter;
    uint groups, used, best;
};
shared float score[MOST];
shared float whole[64]; // a group's score
shared float part[64];
shared uint place[64];

float total(float v) {
    v = subgroupAdd(v);
    if (subgroupElect()) part[gl_SubgroupID] = v;
    barrier();
    float sum = 0;
    for (uint s = 0; s < gl_NumSubgroups; s++) sum += part[s];
    barrier();
    return sum;
}

float gone() { return uintBitsToFloat(0xff800000u); } // less than any score

// first is where the largest score lies, the first of equals.
uint first() {
    float top = gone();
    uint at = NONE;
    for (uint e = gl_LocalInvocationID.x; e < MOST; e += 64)
        if (score[e] > top) {
            top = score[e];
            at = e;
        }
    float most = subgroupMax(top);
    at = subgroupMin(top == most ? at : NONE);
    if (subgroupElect()) {
        part[gl_SubgroupID] = most;
        place[gl_SubgroupID] = at;
    }
    barrier();
    for (uint s = 0; s < gl_NumSubgroups; s++)
        if (s == 0 || part[s] > most || part[s] == most && place[s] < at) {
            most = part[s];
            at = place[s];
        }
    barrier();
    return min(at, MOST - 1); // also where no number is one
}

// keep takes the experts of all groups but the best out of the choice.
void keep() {
    uint size = MOST / groups, lane = gl_LocalInvocationID.x;
    if (lane < groups) {
        float sum = 0, last = 0;
        uint at = NONE;
        for (uint i = 0; i < best; i++) { // the largest behind the last, in the order of the choice
            uint next = NONE;
            for (uint e = lane * size; e < (lane + 1) * size; e++) {
                bool behind = at == NONE || score[e] < last || score[e] == last && e > at;
                if (behind && (next == NONE || score[e] > score[next])) next = e;
            }
            if (next == NONE) break;
            at = next;
            last = score[next];
            sum += last;
        }
        whole[lane] = sum;
    }
    barrier();
    if (lane < groups) {
        uint better = 0;
        for (uint g = 0; g < groups; g++)
            if (whole[g] > whole[lane] || whole[g] == whole[lane] && g < lane) better++;
        if (better >= used)
            for (uint e = lane * size; e < (lane + 1) * size; e++) score[e] = gone();
    }
    barrier();
}

float capped(float x) { return cap > 0 ? cap * tanh(clamp(x / cap, -20.0, 20.0)) : x; }

// weight is an expert's of all, whose largest logit is peak and whose exponentials from there have a sum.
float weight(float x, float peak, float sum) { return SCORE == SIGMOID ? 1 / (1 + exp(-x)) : exp(x - peak) / sum; }

void main() {
    uint row = group(), lane = gl_LocalInvocationID.x, at = row * MOST;
    if (row >= n) return;
    float peak = NEVER, sum = 0;
    for (uint e = lane; e < MOST; e += 64) {
        float x = capped(logits.v[at + e]);
        score[e] = x;
        peak = max(peak, x);
    }
    if (SCORE == SOFTMAX) {
        peak = subgroupMax(peak);
        if (subgroupElect()) part[gl_SubgroupID] = peak;
        barrier();
        for (uint s = 0; s < gl_NumSubgroups; s++) peak = max(peak, part[s]);
        barrier();
        for (uint e = lane; e < MOST; e += 64) sum += exp(score[e] - peak);
        sum = total(sum);
    }
    for (uint e = lane; e < MOST; e += 64) {
        if ((flags & 1) != 0) score[e] = weight(score[e], peak, sum) + bias.v[e];
        else if (groups > 1) score[e] = weight(score[e], peak, sum);
    }
    barrier();
    if (groups > 1) keep();
    uint expert = 0; // of lane i the i-th one
    float mine = 0, all = 0;
    for (uint i = 0; i < most; i++) {
        uint e = first();
        float v = 0;
        if (SCORE == MIXER) { // a softmax of those that are near the best
            float top = score[e], near = 0;
            for (uint o = lane; o < MOST; o += 64)
                if (score[o] != gone() && !((top - score[o]) / max(abs(score[o]), top) > 2 * jitter)) near += exp(score[o] - top);
            v = 1 / total(near);
        } else {
            v = weight(capped(logits.v[at + e]), peak, sum);
        }
        all += v;
        if (lane == i) {
            expert = e;
            mine = v;
            score[e] = gone();
        }
        barrier();
    }
    if (lane >= most) return;
    if ((flags & 4) != 0) mine /= max(max(all, least), 1e-37);
    if (SCORE != MIXER) mine *= scale;
    if ((flags & 2) != 0) mine *= factors.v[expert];
    chosen.v[row * most + lane] = expert;
    share.v[row * most + lane] = mine;
    if (n == 1) {
        pairs.v[lane] = lane;
        tasks.v[3 * lane] = expert;
        tasks.v[3 * lane + 1] = lane;
        tasks.v[3 * lane + 2] = lane + 1;
    }
}
