package generate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/rng"
)

// Sampling holds the settings for drawing a token from logits.
type Sampling struct {
	Temperature float64 `json:"temperature"` // divisor of the logits; 0: the most likely token
	TopK        int     `json:"top_k"`       // only the k most likely tokens; 0: all
	TopP        float64 `json:"top_p"`       // of these, only the most likely tokens whose probabilities add up to this; 0 or 1: all
	// MinP leaves out tokens that are less likely than this fraction of the most likely token's
	// probability; 0: none.
	MinP float64 `json:"min_p,omitempty"`
	Seed uint64  `json:"seed"`
}

// Validate returns an error for the first invalid setting. It names the field, and after fault.InFile
// the flag.
func (s Sampling) Validate() error { return fault.Mark(fault.ErrInput, s.validate()) }

func (s Sampling) validate() error {
	refuse := func(field, flag, format string, value any) error {
		what := fmt.Sprintf(": "+format, value)
		return fault.OfTexts(field+what, flag+what)
	}
	switch {
	case !(s.Temperature >= 0 && s.Temperature <= math.MaxFloat32):
		return refuse("Temperature", "temperature", "%v is not a number of 0 or more", s.Temperature)
	case s.TopK < 0:
		return refuse("TopK", "top-k", "%d is negative", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return refuse("TopP", "top-p", "%v is not between 0 and 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return refuse("MinP", "min-p", "%v is not between 0 and 1", s.MinP)
	}
	return nil
}

// Sampler draws tokens. It allocates its memory once; drawing does not allocate.
type Sampler struct {
	settings Sampling
	key      rng.Key
	order    []int32   // tokens, sorted by logit if TopK or TopP is set
	weights  []float64 // weights of the tokens in this order
}

// NewSampler returns a sampler for logits of vocab tokens. It returns an error if a
// setting is invalid or vocab is below 1.
func NewSampler(s Sampling, vocab int) (*Sampler, error) {
	if err := fault.InFile(s.Validate()); err != nil {
		return nil, err
	}
	if vocab < 1 {
		return nil, fmt.Errorf("vocabulary: has %d tokens", vocab)
	}
	return &Sampler{settings: s, key: rng.New(s.Seed), order: make([]int32, vocab), weights: make([]float64, vocab)}, nil
}

// DrawToken draws token number i of a text from logits [vocab]. The result depends on the logits,
// the settings and i alone. Equally likely tokens are ordered by their ids. DrawToken returns an
// error if the logits have another length, contain NaN, or have no finite maximum.
func (s *Sampler) DrawToken(logits []float32, i uint64) (int32, error) {
	if len(logits) != len(s.order) {
		return 0, fmt.Errorf("logits: there are %d, the vocabulary has %d tokens", len(logits), len(s.order))
	}
	best := 0
	for t, x := range logits {
		if x != x {
			return 0, fmt.Errorf("logits: that of token %d is not a number", t)
		}
		if x > logits[best] {
			best = t
		}
	}
	most := float64(logits[best])
	if math.IsInf(most, 0) {
		return 0, fmt.Errorf("logits: the largest, that of token %d, is %v", best, most)
	}
	if s.settings.Temperature == 0 {
		return int32(best), nil
	}
	for t := range s.order {
		s.order[t] = int32(t)
	}
	n := len(logits)
	limitP := s.settings.TopP > 0 && s.settings.TopP < 1
	if limitK := s.settings.TopK > 0 && s.settings.TopK < n; limitK || limitP {
		slices.SortFunc(s.order, func(a, b int32) int {
			return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b))
		})
		if limitK {
			n = s.settings.TopK
		}
	}
	var sum float64
	for j, t := range s.order[:n] {
		s.weights[j] = math.Exp((float64(logits[t]) - most) / s.settings.Temperature)
		sum += s.weights[j]
	}
	if limitP {
		n, sum = s.cutNucleus(n, sum)
	}
	if s.settings.MinP > 0 {
		sum = 0
		for j, w := range s.weights[:n] {
			if w < s.settings.MinP { // the most likely token has weight 1
				s.weights[j] = 0
			}
			sum += s.weights[j]
		}
	}
	// The last token with a weight also covers the rounding error of the sum.
	u, last := s.key.Float64(i)*sum, s.order[0]
	for j, t := range s.order[:n] {
		if s.weights[j] == 0 {
			continue
		}
		last = t
		if u -= s.weights[j]; u < 0 {
			break
		}
	}
	return last, nil
}

// cutNucleus returns the number of the first n tokens that reach the share TopP of sum,
// and their sum (Holtzman et al. 2020, arXiv 1904.09751, section 3.1).
func (s *Sampler) cutNucleus(n int, sum float64) (int, float64) {
	var part float64
	for j, w := range s.weights[:n] {
		if part += w; part >= s.settings.TopP*sum {
			return j + 1, part
		}
	}
	return n, sum
}
