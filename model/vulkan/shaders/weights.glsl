// The types of weights, by ggml's numbers. A row is read in units of eight values: four at column c0, four at column c1.
layout(constant_id = 0) const uint TYPE = 0;

const uint F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14,
           IQ4_NL = 20, IQ4_XS = 23, BF16 = 30, MXFP4 = 39;

const float LEVELS[16] = float[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
const float FP4[16] = float[](0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6);

// word is the 32 bits from byte o of a row on.
uint word(Words w, uint row, uint o) {
    uint i = row + (o >> 2), shift = (o & 3) * 8;
    return shift == 0 ? w.v[i] : (w.v[i] >> shift) | (w.v[i + 1] << (32 - shift));
}

uint octet(Words w, uint row, uint o) { return (w.v[row + (o >> 2)] >> ((o & 3) * 8)) & 255; }

// scale16 is the float16 at an even byte.
float scale16(Words w, uint row, uint o) { return unpackHalf2x16(w.v[row + (o >> 2)] >> ((o & 2) * 8)).x; }

uvec4 bytes(uint x) { return uvec4(x & 255, (x >> 8) & 255, (x >> 16) & 255, x >> 24); }
vec4 signedBytes(uint x) { return vec4(bitfieldExtract(int(x), 0, 8), bitfieldExtract(int(x), 8, 8), bitfieldExtract(int(x), 16, 8), int(x) >> 24); }
vec4 lows(uint x) { return vec4(bytes(x & 0x0f0f0f0fu)); }
vec4 highs(uint x) { return vec4(bytes((x >> 4) & 0x0f0f0f0fu)); }
vec4 levels(vec4 q) { return vec4(LEVELS[uint(q.x)], LEVELS[uint(q.y)], LEVELS[uint(q.z)], LEVELS[uint(q.w)]); }
vec4 fp4(vec4 q) { return vec4(FP4[uint(q.x)], FP4[uint(q.y)], FP4[uint(q.z)], FP4[uint(q.w)]); }
// fifths are bits 0 to 3 of x, as 16 or 0.
vec4 fifths(uint x) { return vec4(bytes(((x & 1) | ((x & 2) << 7) | ((x & 4) << 14) | ((x & 8) << 21)) << 4)); }

// columns are where the values of unit u belong.
void columns(uint u, out uint c0, out uint c1) {
    if (TYPE == F32 || TYPE == F16 || TYPE == BF16 || TYPE == Q8_0) {
        c0 = 8 * u;
        c1 = c0 + 4;
    } else if (TYPE == Q4_K || TYPE == Q5_K || TYPE == Q2_K || TYPE == Q3_K) {
        c0 = 64 * (u >> 3) + 4 * (u & 7);
        c1 = c0 + 32;
    } else if (TYPE == Q6_K) {
        c0 = 128 * (u >> 4) + 32 * ((u >> 3) & 1) + 4 * (u & 7);
        c1 = c0 + 64;
    } else {
        c0 = 32 * (u >> 2) + 4 * (u & 3);
        c1 = c0 + 16;
    }
}

// pairScale is the six-bit scale and minimum of sub-block j of a block of Q4_K or Q5_K whose scales begin at byte o.
vec2 pairScale(Words w, uint row, uint o, uint j) {
    if (j < 4) return vec2(octet(w, row, o + j) & 63, octet(w, row, o + j + 4) & 63);
    uint both = octet(w, row, o + j + 4);
    return vec2((both & 15) | ((octet(w, row, o + j - 4) >> 6) << 4), (both >> 4) | ((octet(w, row, o + j) >> 6) << 4));
}

// scale3 is scale j of the sixteen of a block of Q3_K.
float scale3(Words w, uint row, uint o, uint j) {
    uint low = (octet(w, row, o + (j & 7)) >> ((j >> 3) * 4)) & 15, high = (octet(w, row, o + 8 + (j & 3)) >> ((j >> 2) * 2)) & 3;
    return float(int(low | (high << 4)) - 32);
}

// values are those of unit u of a row that begins at a word.
void values(Words w, uint row, uint u, out vec4 a, out vec4 b) {
    if (TYPE == F32) {
        uint i = row + 8 * u;
        a = uintBitsToFloat(uvec4(w.v[i], w.v[i + 1], w.v[i + 2], w.v[i + 3]));
        b = uintBitsToFloat(uvec4(w.v[i + 4], w.v[i + 5], w.v[i + 6], w.v[i + 7]));
    } else if (TYPE == F16) {
        uint i = row + 4 * u;
        a = vec4(unpackHalf2x16(w.v[i]), unpackHalf2x16(w.v[i + 1]));
        b = vec4(unpackHalf2x16(w.v[i + 2]), unpackHalf2x16(w.v[i + 3]));
    } else if (TYPE == BF16) {
        uvec4 x = uvec4(w.v[row + 4 * u], w.v[row + 4 * u + 1], w.v[row + 4 * u + 2], w.v[row + 4 * u + 3]);
        uvec4 low = x << 16, high = x & 0xffff0000u;
        a = uintBitsToFloat(uvec4(low.x, high.x, low.y, high.y));
        b = uintBitsToFloat(uvec4(low.z, high.z, low.w, high.w));
    } else if (TYPE == Q8_0) {
        uint o = (u >> 2) * 34, at = o + 2 + 8 * (u & 3);
        float d = scale16(w, row, o);
        a = d * signedBytes(word(w, row, at));
        b = d * signedBytes(word(w, row, at + 4));
    } else if (TYPE == Q4_0 || TYPE == IQ4_NL) {
        uint o = (u >> 2) * 18, q = word(w, row, o + 2 + 4 * (u & 3));
        float d = scale16(w, row, o);
        a = TYPE == Q4_0 ? d * (lows(q) - 8) : d * levels(lows(q));
        b = TYPE == Q4_0 ? d * (highs(q) - 8) : d * levels(highs(q));
    } else if (TYPE == Q4_1) {
        uint o = (u >> 2) * 20, q = word(w, row, o + 4 + 4 * (u & 3));
        float d = scale16(w, row, o), m = scale16(w, row, o + 2);
        a = d * lows(q) + m;
        b = d * highs(q) + m;
    } else if (TYPE == Q5_0 || TYPE == Q5_1) {
        uint size = TYPE == Q5_0 ? 22 : 24, head = size - 20, j = 4 * (u & 3), o = (u >> 2) * size;
        uint high = word(w, row, o + head), q = word(w, row, o + head + 4 + j);
        float d = scale16(w, row, o), m = TYPE == Q5_0 ? -16 * d : scale16(w, row, o + 2);
        a = d * (lows(q) + fifths(high >> j)) + m;
        b = d * (highs(q) + fifths(high >> (j + 16))) + m;
    } else if (TYPE == MXFP4) {
        uint o = (u >> 2) * 17, e = octet(w, row, o), q = word(w, row, o + 1 + 4 * (u & 3));
        float d = uintBitsToFloat(e == 0 ? 0x00400000u : e << 23);
        a = d * fp4(lows(q));
        b = d * fp4(highs(q));
    } else if (TYPE == Q4_K || TYPE == Q5_K) {
        uint size = TYPE == Q4_K ? 144 : 176, o = (u >> 5) * size, p = (u & 31) >> 3, l = 4 * (u & 7);
        float d = scale16(w, row, o), least = scale16(w, row, o + 2);
        vec2 s0 = pairScale(w, row, o + 4, 2 * p), s1 = pairScale(w, row, o + 4, 2 * p + 1);
        uint q = word(w, row, o + (TYPE == Q4_K ? 16 : 48) + 32 * p + l);
        vec4 low = lows(q), high = highs(q);
        if (TYPE == Q5_K) {
            uint bits = word(w, row, o + 16 + l);
            low += vec4(bytes(((bits >> (2 * p)) & 0x01010101u) << 4));
            high += vec4(bytes(((bits >> (2 * p + 1)) & 0x01010101u) << 4));
        }
        a = (d * s0.x) * low - least * s0.y;
        b = (d * s1.x) * high - least * s1.y;
    } else if (TYPE == Q6_K) {
        uint o = (u >> 5) * 210, n = (u & 31) >> 4, s = (u >> 3) & 1, l = 4 * (u & 7);
        uint q = word(w, row, o + 64 * n + 32 * s + l), h = word(w, row, o + 128 + 32 * n + l) >> (2 * s);
        uint at = o + 192 + 8 * n + (l >> 4) + 2 * s;
        float d = scale16(w, row, o + 208);
        float s0 = float(bitfieldExtract(int(octet(w, row, at)), 0, 8)), s1 = float(bitfieldExtract(int(octet(w, row, at + 4)), 0, 8));
        a = (d * s0) * (lows(q) + vec4(bytes((h & 0x03030303u) << 4)) - 32);
        b = (d * s1) * (highs(q) + vec4(bytes(((h >> 4) & 0x03030303u) << 4)) - 32);
    } else if (TYPE == Q2_K || TYPE == Q3_K) {
        uint size = TYPE == Q2_K ? 84 : 110, o = (u >> 5) * size, r = u & 31, n = r >> 4, s = (r >> 3) & 1, l = 4 * (r & 7);
        uint q = word(w, row, o + (TYPE == Q2_K ? 16 : 32) + 32 * n + l) >> (4 * s), sub = 8 * n + 4 * s + (l >> 4);
        vec4 low = vec4(bytes(q & 0x03030303u)), high = vec4(bytes((q >> 2) & 0x03030303u));
        if (TYPE == Q2_K) {
            float d = scale16(w, row, o + 80), least = scale16(w, row, o + 82);
            uint s0 = octet(w, row, o + sub), s1 = octet(w, row, o + sub + 2);
            a = (d * float(s0 & 15)) * low - least * float(s0 >> 4);
            b = (d * float(s1 & 15)) * high - least * float(s1 >> 4);
        } else {
            uint mask = word(w, row, o + l) >> (4 * n + 2 * s);
            float d = scale16(w, row, o + 108);
            low += 4 * vec4(bytes(mask & 0x01010101u)) - 4;
            high += 4 * vec4(bytes((mask >> 1) & 0x01010101u)) - 4;
            a = (d * scale3(w, row, o + 96, sub)) * low;
            b = (d * scale3(w, row, o + 96, sub + 2)) * high;
        }
    } else { // IQ4_XS
        uint o = (u >> 5) * 136, i = (u & 31) >> 2, q = word(w, row, o + 8 + 16 * i + 4 * (u & 3));
        uint low = (octet(w, row, o + 4 + (i >> 1)) >> ((i & 1) * 4)) & 15, high = (octet(w, row, o + 2 + (i >> 2)) >> ((i & 3) * 2)) & 3;
        float d = scale16(w, row, o) * float(int(low | (high << 4)) - 32);
        a = d * levels(lows(q));
        b = d * levels(highs(q));
    }
}

// four are the activations at columns c to c+3 of a row that begins at a place; those behind the last column are zero.
vec4 four(Floats x, uint row, uint c, uint cols) {
    if (c + 4 <= cols) return vec4(x.v[row + c], x.v[row + c + 1], x.v[row + c + 2], x.v[row + c + 3]);
    vec4 v = vec4(0);
    for (uint i = 0; i < 4; i++)
        if (c + i < cols) v[i] = x.v[row + c + i];
    return v;
}

// In products 1 has rows of x multiplied by the experts that were chosen for them (experts.comp).
layout(constant_id = 2) const uint EXPERTS = 0;

layout(push_constant) uniform Push {
    Words w;       // [rows], each of stride words
    Floats x;      // [n, cols]; ids in a look-up
    Floats y;      // [n, rows]; [n, cols] in a look-up
    Floats bias;   // [rows], if flags has 1
    uint rows, cols, n, stride;
    float scale;   // of the sum with the bias
    uint flags;    // 1: bias, 2: add to y, 4: the product is weighed by share, before the bias
    Words experts; // [experts, 4] where each one's w and bias lie
    Words tasks;   // [n, 3] what work groups do: an expert, the first of its pairs in the list and the one behind the last
    Words pairs;   // the list: pair p is of row p / each of x, and gives row p of y
    Floats share;  // of each pair
    uint each;
};

// Work is what a work group multiplies: one W by rows [first, end) of the list; without experts of x.
struct Work {
    Words w;
    Floats bias;
    uint first, end;
};

Work work(uint number, uint size) {
    if (EXPERTS == 0) return Work(w, bias, number * size, min(n, number * size + size));
    uint e = 4 * tasks.v[3 * number];
    return Work(Words(uvec2(experts.v[e], experts.v[e + 1])), Floats(uvec2(experts.v[e + 2], experts.v[e + 3])), tasks.v[3 * number + 1], tasks.v[3 * number + 2]);
}

// outputOf is the row of y that place i of the list makes, and inputOf the row of x that a row of y is made of.
uint outputOf(uint i) { return EXPERTS == 0 ? i : pairs.v[i]; }
uint inputOf(uint r) { return EXPERTS == 0 ? r : r / each; }

void put(Floats bias, uint r, uint row, float sum) {
    if (EXPERTS != 0 && (flags & 4) != 0) sum *= share.v[r];
    if ((flags & 1) != 0) sum += bias.v[row];
    sum *= scale;
    uint at = r * rows + row;
    y.v[at] = (flags & 2) != 0 ? y.v[at] + sum : sum;
}
