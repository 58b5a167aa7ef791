package train

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/token"
)

// Score is how well a model predicts tokens.
type Score struct {
	Loss   float64 `json:"loss"`          // mean nats of a token
	Bits   float64 `json:"bits_per_byte"` // the same for each byte of text
	Tokens int64   `json:"tokens"`        // that were predicted
	Bytes  int64   `json:"bytes"`         // that these stand for
}

// Bucket is the loss of tokens that have First to Last tokens before them, of
// which they see all.
type Bucket struct {
	First  int     `json:"first"`
	Last   int     `json:"last"`
	Loss   float64 `json:"loss"` // mean nats of a token
	Tokens int64   `json:"tokens"`
}

// evalTokens is the number of tokens that are evaluated at a time.
const evalTokens = 1 << 13

// Evaluate returns how well m predicts tokens, which are those of vocab, and how
// that depends on the length of the context. Tokens are cut into windows of the
// model's context, each of which begins anew, so that every token but the first
// is predicted once. With a limit above 0, about limit tokens are, in windows
// spread evenly. A context that ends returns its error.
func Evaluate(ctx context.Context, m *model.Model[float32], vocab *token.Vocabulary, tokens []int32, limit int) (Score, []Bucket, error) {
	c := m.Config()
	if vocab.Size() != c.Vocab {
		return Score{}, nil, fmt.Errorf("vocabulary: has %d tokens, the model %d", vocab.Size(), c.Vocab)
	}
	if len(tokens) < 2 {
		return Score{}, nil, fmt.Errorf("tokens: there are %d, and it takes 2 to predict one", len(tokens))
	}
	width := min(c.Context, len(tokens)-1)
	windows := (len(tokens) - 2 + width) / width
	chosen := windows
	if limit > 0 {
		chosen = min(windows, max(1, limit/width))
	}
	e := evaluation{width: width, sums: make([]float64, bits.Len(uint(width))), counts: make([]int64, bits.Len(uint(width)))}
	rows := min(chosen, max(1, evalTokens/width))
	b := model.Batch{N: width}
	losses := make([]float64, rows*width)
	for w := 0; w < chosen; w += rows {
		if err := ctx.Err(); err != nil {
			return Score{}, nil, err
		}
		b.B, b.Tokens, b.Targets = min(rows, chosen-w), b.Tokens[:0], b.Targets[:0]
		for i := range b.B {
			at := (w + i) * windows / chosen * width
			n := min(width, len(tokens)-1-at)
			b.Tokens = append(b.Tokens, tokens[at:][:n]...)
			b.Targets = append(b.Targets, tokens[at+1:][:n]...)
			for range width - n {
				b.Tokens = append(b.Tokens, 0)
				b.Targets = append(b.Targets, -1)
			}
		}
		losses := losses[:b.B*width]
		if err := m.Losses(&b, losses); err != nil {
			return Score{}, nil, err
		}
		e.add(&b, losses)
		e.bytes += vocab.Bytes(b.Targets)
	}
	score, buckets := e.result()
	return score, buckets, nil
}

// evaluation adds up losses by position: bucket k is of positions p with
// 2ᵏ ≤ p+1 < 2ᵏ⁺¹.
type evaluation struct {
	width  int
	sums   []float64
	counts []int64
	bytes  int64
}

func (e *evaluation) add(b *model.Batch, losses []float64) {
	for i, l := range losses {
		if b.Targets[i] >= 0 {
			k := bits.Len(uint(i%b.N+1)) - 1
			e.sums[k] += l
			e.counts[k]++
		}
	}
}

func (e *evaluation) result() (s Score, list []Bucket) {
	for k, n := range e.counts {
		s.Loss += e.sums[k]
		s.Tokens += n
		list = append(list, Bucket{First: 1<<k - 1, Last: min(1<<(k+1)-1, e.width) - 1, Loss: e.sums[k] / float64(n), Tokens: n})
	}
	s.Loss /= float64(s.Tokens)
	s.Bytes = e.bytes
	s.Bits = perByte(s.Loss, s.Tokens, s.Bytes)
	return s, list
}
