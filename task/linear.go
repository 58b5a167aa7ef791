package task

import (
	"math"
	"math/bits"

	"github.com/farfield-ml/farfield/rng"
)

// linearClassifier is a linear classifier over averaged embeddings of words and of pairs of
// neighbouring words (Joulin et al. 2016, arXiv 1607.01759). It learns by stochastic gradient
// descent with a rate that falls to 0.
type linearClassifier struct {
	embed []float32 // [rows, linearWidth]
	shift int       // 64 minus the binary logarithm of rows
	out   []float32 // [classes, linearWidth]
	mean  [linearWidth]float32
	grad  [linearWidth]float32
	probs []float64 // [classes]
}

// Sizes and training of a linearClassifier. Rows are shared by hashing. Small data sets get
// more epochs, up to linearWork features in all.
const (
	linearWidth    = 10
	linearLogRows  = 20
	linearRate     = 0.5
	leastEpochs    = 5
	mostEpochs     = 25
	linearWork     = 1 << 27
	linearSeed     = 1
	maxLinearClass = 1 << 10
	hashStart      = 14695981039346656037 // FNV-1a
	hashFactor     = 1099511628211
	bigramFactor   = 0x9e3779b97f4a7c15
)

// newLinearClassifier returns a classifier before training, with rows for a number of different
// features.
func newLinearClassifier(classes, features int) *linearClassifier {
	logRows := min(bits.Len(uint(features))+1, linearLogRows)
	c := &linearClassifier{
		embed: make([]float32, linearWidth<<logRows), shift: 64 - logRows, out: make([]float32, classes*linearWidth), probs: make([]float64, classes),
	}
	key := rng.New(linearSeed)
	for i := range c.embed {
		c.embed[i] = float32((2*key.Float64(uint64(i)) - 1) / linearWidth)
	}
	return c
}

// appendFeatures appends hashes of the words and bigrams of a text, whose tokens are bytes plus
// one.
func appendFeatures(features []uint64, tokens []int32) []uint64 {
	var before uint64
	eachTextWord(tokens, func(word []byte) {
		h := uint64(hashStart)
		for _, b := range word {
			h = (h ^ uint64(b)) * hashFactor
		}
		features = append(features, h*bigramFactor)
		if before != 0 {
			features = append(features, (before*bigramFactor^h)*bigramFactor)
		}
		before = h
	})
	return features
}

// row returns the embedding of a feature.
func (c *linearClassifier) row(feature uint64) []float32 {
	return c.embed[int(feature>>c.shift)*linearWidth:][:linearWidth]
}

// predict sets probs to the probabilities of the classes for features.
func (c *linearClassifier) predict(features []uint64) {
	clear(c.mean[:])
	for _, f := range features {
		e := c.row(f)
		for j := range c.mean {
			c.mean[j] += e[j]
		}
	}
	for j := range c.mean {
		c.mean[j] /= float32(max(len(features), 1))
	}
	top := math.Inf(-1)
	for k := range c.probs {
		o, sum := c.out[k*linearWidth:][:linearWidth], float32(0)
		for j := range c.mean {
			sum += o[j] * c.mean[j]
		}
		c.probs[k] = float64(sum)
		top = max(top, c.probs[k])
	}
	sum := 0.
	for k, x := range c.probs {
		c.probs[k] = math.Exp(x - top)
		sum += c.probs[k]
	}
	for k := range c.probs {
		c.probs[k] /= sum
	}
}

// update makes one step of gradient descent on a sample of a class.
func (c *linearClassifier) update(features []uint64, class int32, rate float64) {
	if len(features) == 0 {
		return
	}
	c.predict(features)
	clear(c.grad[:])
	for k, p := range c.probs {
		step := -rate * p
		if k == int(class) {
			step += rate
		}
		s, o := float32(step), c.out[k*linearWidth:][:linearWidth]
		for j := range o {
			c.grad[j] += s * o[j]
			o[j] += s * c.mean[j]
		}
	}
	for j := range c.grad {
		c.grad[j] /= float32(len(features))
	}
	for _, f := range features {
		e := c.row(f)
		for j := range e {
			e[j] += c.grad[j]
		}
	}
}

// learn trains the classifier on samples of features and their classes, in a new order each epoch.
func (c *linearClassifier) learn(samples [][]uint64, classes []int32) {
	features := 1
	for _, s := range samples {
		features += len(s)
	}
	epochs := min(max(linearWork/features, leastEpochs), mostEpochs)
	n := len(samples)
	for i := range epochs * n {
		at := rng.New(linearSeed).Fold(uint64(i/n)).Permute(i%n, n)
		c.update(samples[at], classes[at], linearRate*(1-float64(i)/float64(epochs*n)))
	}
}

// scoreLinear scores a linearClassifier over the words of src, whose tokens are bytes plus one.
func scoreLinear(src Source, n int) (Baseline, error) {
	var samples [][]uint64
	var classes []int32
	counts, features := make([]int, src.Spec().Classes), 0
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		samples, classes = append(samples, appendFeatures(nil, s.Tokens)), append(classes, s.Class)
		counts[s.Class]++
		features += len(samples[len(samples)-1])
	})
	if err != nil {
		return Baseline{}, err
	}
	c := newLinearClassifier(src.Spec().Classes, features)
	c.learn(samples, classes)
	var read []uint64
	return scoreClasses("linear classifier over words and bigrams", src, n, learned, func(s *Sample) int {
		if read = appendFeatures(read[:0], s.Tokens); len(read) == 0 {
			return argMax(counts) // the classifier has no bias
		}
		c.predict(read)
		return argMax(c.probs)
	})
}
