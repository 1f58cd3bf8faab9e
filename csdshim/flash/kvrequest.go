package flash

// KVShape is how a sequence that the drive attends to lies on flash (InstInfer, arXiv 2409.04992, Sec. IV-C; a page is
// Geometry.PageBytes). Keys lie twice.
//
// Token copy: a page of keys, and one of values, holds TokenGroup consecutive tokens of one head of one layer. Paired, a page holds
// TokenGroup tokens' keys and behind them their values: half as many tokens, and one page where a chosen token has two.
// Embedding copy: a page holds EmbeddingGroup neighbouring dimensions of PageBytes/(EmbeddingGroup·ElemBytes) consecutive
// tokens of a head's keys, dimension by dimension.
type KVShape struct {
	Layers, Heads    int // KV heads that lie on this drive
	KeyDim, ValueDim int // of a head
	ElemBytes        int // of one number, of keys and values alike: 2 or 4
	TokenGroup       int // tokens of a token page (the paper's n); at least 1, and a row of each fits the page
	EmbeddingGroup   int // dimensions of an embedding page (the paper's m): 2, 4 or 8; 0 = no embedding copy
	Paired           bool
}

// KeyRowBytes is the size of one token's key of one head, ValueRowBytes that of its value.
func (s KVShape) KeyRowBytes() int { return s.KeyDim * s.ElemBytes }

// ValueRowBytes is the size of one token's value of one head.
func (s KVShape) ValueRowBytes() int { return s.ValueDim * s.ElemBytes }

// EmbeddingTokens is how many tokens an embedding page of a size holds; 0 = there is no embedding copy.
func (s KVShape) EmbeddingTokens(pageBytes int) int {
	if s.EmbeddingGroup == 0 {
		return 0
	}
	return pageBytes / (s.EmbeddingGroup * s.ElemBytes)
}

// KVPart says what of a head is read.
type KVPart uint8

// What can be read of a head.
const (
	KVKeys       KVPart = iota // rows of the token copy
	KVValues                   // rows of the values
	KVEmbeddings               // columns of the embedding copy: one dimension of all tokens that it holds
)

// KVRead asks for a part of one head of a layer.
type KVRead struct {
	Layer, Head int
	Part        KVPart
	Index       []int32 // rising: tokens of KVKeys and KVValues, dimensions of KVEmbeddings
	// Dst gets a row an index, one after another: KeyRowBytes, ValueRowBytes, or ElemBytes for each of the tokens that the
	// embedding copy of the layer holds (see the store's EmbeddedKV).
	Dst []byte
}
