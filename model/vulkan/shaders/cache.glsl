// Keys and values on the device: tiles of 16 tokens, keys [DK][16], values [16][DV], positions [16]. A table names the tiles of a KV head:
// their address and how many tokens they hold.
layout(constant_id = 0) const uint ELEM = 0; // 0: float32, 1: float16, 2: bfloat16
layout(constant_id = 1) const uint DK = 64;
layout(constant_id = 2) const uint DV = 64;
const uint NOWHERE = 0xffffffffu;

float element(Words t, uint i) {
    if (ELEM == 0) return uintBitsToFloat(t.v[i]);
    uint both = t.v[i >> 1] >> ((i & 1) * 16);
    return ELEM == 1 ? unpackHalf2x16(both).x : uintBitsToFloat(both << 16);
}

const uint KEYS = ELEM == 0 ? DK * 16 : DK * 8, VALUES = ELEM == 0 ? DV * 16 : DV * 8; // words

float key(Words t, uint slot, uint d) { return element(t, d * 16 + slot); }
float value(Words t, uint slot, uint d) { return element(t, (ELEM == 0 ? KEYS : 2 * KEYS) + slot * DV + d); }
int position(Words t, uint slot) { return int(t.v[KEYS + VALUES + slot]); }

layout(push_constant) uniform Push {
    Floats q;     // [n, heads, DK]
    Floats y;     // [n, heads, DV], or parts; weights in mass
    Quads table;  // [KV heads, tiles]: address, tokens
    Words picks;  // 16·tile + slot of the tokens that count, a KV head's behind another's
    Words counts; // [KV heads, 3]: tiles, picks, where the picks begin; NOWHERE picks = all tokens count
    Words posq;   // [n]
    Floats sinks; // [heads]
    Floats stats; // [n, heads, 2]: greatest score and sum of exponentials
    uint heads, share, n, tiles, window, splits, flags; // flags 1: sinks, 2: stats, 4: each row's weights
    float scale, cap;
};

// visible reports whether a query sees a key.
bool visible(int at, int pos) { return pos <= at && (window == 0 || at - pos < int(window)); }

float score(float dots) {
    float s = dots * scale;
    return cap > 0 ? cap * tanh(clamp(s / cap, -20.0, 20.0)) : s;
}

// token finds number i of the tokens that count: its tile and slot; slot NOWHERE if there is none.
uint token(uint g, uint i, out Words tile) {
    uint code = i;
    if (counts.v[3 * g + 1] != NOWHERE) {
        if (i >= counts.v[3 * g + 1]) return NOWHERE;
        code = picks.v[counts.v[3 * g + 2] + i];
    }
    if (code / 16 >= counts.v[3 * g]) return NOWHERE;
    uvec4 t = table.v[g * tiles + code / 16];
    if ((code & 15) >= t.z) return NOWHERE;
    tile = Words(t.xy);
    return code & 15;
}

// columnCount is how many numbers token takes.
uint columnCount(uint g) { return counts.v[3 * g + 1] != NOWHERE ? counts.v[3 * g + 1] : 16 * counts.v[3 * g]; }
