package exchange

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/tensor"
)

// Subject is a trained model of texts, whose attention is to be exchanged.
type Subject struct {
	Model *model.Model
	// Batch returns the batch for a window of tokens; nil: the batch holds the tokens alone.
	Batch func(ctx context.Context, ids []int32) (*model.Batch, error)
	// Pool returns the vector of a window from its last rows [n,width]; nil: their mean.
	Pool func(rows []float32, n, width int) ([]float32, error)
	// Positions is exchanged.Interpolate if learned positions are interpolated beyond Learned
	// tokens, and "" otherwise.
	Positions string
	Learned   int
}

// predictsNext reports whether the model is judged by the tokens that it predicts.
func (s *Subject) predictsNext() bool {
	c := s.Model.Config()
	return c.IsCausal() && c.Pool == "" && (c.Outputs == 0 || c.Outputs == c.Vocab)
}

func (s *Subject) batch(ctx context.Context, ids []int32) (*model.Batch, error) {
	if s.Batch != nil {
		return s.Batch(ctx, ids)
	}
	return &model.Batch{B: 1, N: len(ids), Tokens: ids}, nil
}

// pool returns the vector of rows.
func (s *Subject) pool(rows []float32, n, width int) ([]float32, error) {
	if s.Pool != nil {
		return s.Pool(rows, n, width)
	}
	v := make([]float32, width)
	for j := range v {
		var sum float64
		for i := range n {
			sum += float64(rows[i*width+j])
		}
		v[j] = float32(sum / float64(n))
	}
	return v, nil
}

// answer is what a model makes of a window.
type answer struct {
	vector, rows []float32 // of an encoder
	width        int
	nats         float64 // of a decoder, over its tokens
	tokens       int
}

// errLastRows ends a pass whose last rows are known.
var errLastRows = errors.New("the last rows are known")

// answer runs a pass of a window.
func (s *Subject) answer(ctx context.Context, ids []int32) (a answer, err error) {
	b, err := s.batch(ctx, ids)
	if err != nil {
		return a, err
	}
	if s.predictsNext() {
		b.Targets = append(append([]int32{}, ids[1:]...), -1)
		losses := make([]float64, len(ids))
		if err := s.Model.Losses(ctx, b, losses); err != nil {
			return a, err
		}
		for _, x := range losses {
			a.nats += x
		}
		a.tokens = len(ids) - 1
		return a, nil
	}
	last := s.Model.Config().Layers + 1
	err = s.Model.VisitLayers(ctx, b, func(source bool, layer int, x tensor.Mat) error {
		if source || layer != last {
			return nil
		}
		a.rows, a.width, a.tokens = make([]float32, 0, x.Rows*x.Cols), x.Cols, x.Rows
		for i := range x.Rows {
			a.rows = append(a.rows, x.Row(i)...)
		}
		return errLastRows
	})
	if err != nil && !errors.Is(err, errLastRows) {
		return a, err
	}
	for i, x := range a.rows {
		if x-x != 0 {
			return a, fmt.Errorf("row %d of the last layer is %w", i/a.width, attention.ErrNonFinite)
		}
	}
	a.vector, err = s.pool(a.rows, a.tokens, a.width)
	return a, err
}

// Quality compares a model with the trained one.
type Quality struct {
	// Cosine and LeastCosine are for encoders: the mean and the least cosine of the vectors of
	// windows. RowCosine is the mean cosine of the rows of tokens.
	Cosine      float64 `json:"cosine,omitempty"`
	LeastCosine float64 `json:"least_cosine,omitempty"`
	RowCosine   float64 `json:"row_cosine,omitempty"`
	// Nats is for decoders: the nats a token by which the model is worse than the trained one,
	// whose own are TrainedNats.
	Nats        float64 `json:"nats_over,omitempty"`
	TrainedNats float64 `json:"trained_nats,omitempty"`
	Seconds     float64 `json:"seconds"` // seconds of all passes
	isDecoder   bool
}

// Loss returns how far the model is from the trained one: 1 - Cosine for encoders, Nats for
// decoders.
func (q Quality) Loss() float64 {
	if q.isDecoder {
		return q.Nats
	}
	return 1 - q.Cosine
}

// String returns the number by which wishes are stated, with its unit.
func (q Quality) String() string {
	if q.isDecoder {
		return fmt.Sprintf("%+.4f nats a token", q.Nats)
	}
	return fmt.Sprintf("cosine %.4f", q.Cosine)
}

// Reference is a set of windows with the outputs of the trained model.
type Reference struct {
	windows [][]int32
	answers []answer
	seconds float64
}

// Ask runs the windows through the model as it is, and returns them with its outputs.
func (s *Subject) Ask(ctx context.Context, windows [][]int32) (*Reference, error) {
	r := &Reference{windows: windows}
	start := time.Now()
	for _, ids := range windows {
		a, err := s.answer(ctx, ids)
		if err != nil {
			return nil, err
		}
		r.answers = append(r.answers, a)
	}
	r.seconds = time.Since(start).Seconds()
	return r, nil
}

// Compare runs at most most windows of r through the model as it is now, and returns how far its
// outputs are from those of r.
func (s *Subject) Compare(ctx context.Context, r *Reference, most int) (q Quality, err error) {
	q.isDecoder, q.LeastCosine = s.predictsNext(), 1
	n, rows, tokens := min(most, len(r.windows)), 0, 0
	start := time.Now()
	for i, ids := range r.windows[:n] {
		a, err := s.answer(ctx, ids)
		if err != nil {
			return q, err
		}
		b := r.answers[i]
		if q.isDecoder {
			q.Nats, q.TrainedNats, tokens = q.Nats+a.nats-b.nats, q.TrainedNats+b.nats, tokens+a.tokens
			continue
		}
		x := cosine(a.vector, b.vector)
		q.Cosine += x
		q.LeastCosine = min(q.LeastCosine, x)
		for t := range a.tokens {
			q.RowCosine += cosine(a.rows[t*a.width:][:a.width], b.rows[t*a.width:][:a.width])
		}
		rows += a.tokens
	}
	q.Seconds = time.Since(start).Seconds()
	if q.isDecoder {
		q.LeastCosine = 0
		q.Nats, q.TrainedNats = q.Nats/float64(tokens), q.TrainedNats/float64(tokens)
		return q, nil
	}
	q.Cosine, q.RowCosine = q.Cosine/float64(n), q.RowCosine/float64(rows)
	return q, nil
}

// cosine returns the cosine of the angle between two vectors; 0 for a vector of zeros.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// with runs f while the layers for which replace returns a mechanism have it.
func (s *Subject) with(replace func(layer int) attention.Mechanism, f func() error) error {
	restore := model.WrapMechanisms(s.Model, func(name string, of attention.Mechanism) attention.Mechanism {
		if i := numberOf(name); i >= 0 {
			if m := replace(i); m != nil {
				return m
			}
		}
		return of
	})
	defer restore()
	return f()
}

// numberOf returns the number of a layer of self-attention by its name; -1: it is none.
func numberOf(name string) int {
	var i int
	if n, err := fmt.Sscanf(name, "layers.%d.attn", &i); n != 1 || err != nil || name != layerName(i) {
		return -1
	}
	return i
}

func layerName(i int) string { return "layers." + strconv.Itoa(i) + ".attn" }

// shareRows is the number of queries whose weights are held at once.
const shareRows = 256

// farShares returns the mean share of the weight of a query that lies on its far keys, by layers.
func (s *Subject) farShares(ctx context.Context, windows [][]int32, f field) (map[int]float64, error) {
	sums, counts := map[int]float64{}, map[int]float64{}
	defer model.Watch(s.Model, func(name string, of attention.Mechanism, c *attention.Call) error {
		layer := numberOf(name)
		if layer < 0 {
			return nil
		}
		n, m := c.Q.N, c.K.N
		heads, errs := make([]float64, c.Q.H), make([]error, c.Q.H)
		par.RunParts(c.Q.H, func(h int) {
			data := make([]float32, min(shareRows, n)*m)
			for i0 := 0; i0 < n && errs[h] == nil; i0 += shareRows {
				rows := min(shareRows, n-i0)
				w := tensor.Mat{Data: data[:rows*m], Rows: rows, Cols: m, Stride: m}
				errs[h] = of.Weights(w, c, 0, h, i0, i0+rows)
				for i := range rows {
					for j, x := range w.Row(i) {
						if !f.isNear(i0+i+m-n, j, m, c.Causal) {
							heads[h] += float64(x)
						}
					}
				}
			}
		})
		for h := range heads {
			sums[layer] += heads[h]
		}
		counts[layer] += float64(n * c.Q.H)
		return errors.Join(errs...)
	})()
	for _, ids := range windows {
		if _, err := s.answer(ctx, ids); err != nil {
			return nil, err
		}
	}
	for layer := range sums {
		sums[layer] /= counts[layer]
	}
	return sums, nil
}

// wildTokens is the number of tokens whose wild weights are measured, in time that is quadratic.
const wildTokens = 512

// wildShares returns the mean share of the weight of a query that lies on wild weights, by layers, if
// each layer of the trained model has a choice of order 1 or 2 by itself.
func (r *run) wildShares(c Choice, window []int32) (map[int]float64, error) {
	shares := map[int]float64{}
	if c.Order == 0 || c.Tol > 0 {
		return shares, nil
	}
	defer model.Watch(r.s.Model, func(name string, _ attention.Mechanism, call *attention.Call) error {
		layer := numberOf(name)
		if !slices.Contains(r.layers, layer) {
			return nil
		}
		m, err := r.mechanism(layer, c)
		if err != nil {
			return err
		}
		heads, err := m.Diagnose(call)
		for _, h := range heads {
			shares[layer] += h.WildShare / float64(len(heads))
		}
		return err
	})()
	_, err := r.s.answer(r.ctx, window[:min(wildTokens, len(window))])
	return shares, err
}

// Windows returns the windows of r.
func (r *Reference) Windows() [][]int32 { return r.windows }

// Vectors returns the vectors of the windows; those of a decoder are nil.
func (r *Reference) Vectors() [][]float32 {
	list := make([][]float32, len(r.answers))
	for i, a := range r.answers {
		list[i] = a.vector
	}
	return list
}
