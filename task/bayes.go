package task

import (
	"math"
	"slices"
)

// findThreshold returns where to cut x so that most y are on their side: class 1
// above it, or below.
func findThreshold(x []float64, y []int32) (at float64, above bool) {
	order := make([]int, len(x))
	ones := 0
	for i := range order {
		order[i] = i
		ones += int(y[i])
	}
	slices.SortFunc(order, func(a, b int) int {
		if x[a] < x[b] {
			return -1
		}
		if x[a] > x[b] {
			return 1
		}
		return a - b
	})
	// With all of x above the cut, those of class 1 are right.
	at, above = math.Inf(-1), true
	best, right := ones, ones
	if len(y)-ones > best {
		best, above = len(y)-ones, false
	}
	for k, i := range order {
		right += 1 - 2*int(y[i]) // x[i] comes below
		if k+1 < len(order) && x[order[k+1]] == x[i] {
			continue
		}
		if right > best {
			best, at, above = right, x[i], true
		}
		if len(y)-right > best {
			best, at, above = len(y)-right, x[i], false
		}
	}
	return at, above
}

// naiveBayes is a multinomial naive Bayes classifier with one added to each count
// (Manning, Raghavan and Schütze 2008, section 13.2). Its vocabulary is the features
// that it has learned from; others say nothing about a sample.
type naiveBayes struct {
	vocabulary map[string]int32
	counts     map[[2]int32]float64 // of a feature and a class, as long as it learns
	logs       [][]classLog         // of a feature the classes that have it
	samples    []float64            // of a class
	total      []float64            // features of a class
	score      []float64
}

// classLog is ln(count + 1) of a feature in a class.
type classLog struct {
	class int32
	log   float64
}

func newNaiveBayes(classes int) *naiveBayes {
	return &naiveBayes{vocabulary: map[string]int32{}, counts: map[[2]int32]float64{},
		samples: make([]float64, classes), total: make([]float64, classes), score: make([]float64, classes)}
}

// addSample counts a sample of a class.
func (b *naiveBayes) addSample(class int32, features func(f func([]byte))) {
	b.samples[class]++
	features(func(feature []byte) {
		i, ok := b.vocabulary[string(feature)]
		if !ok {
			i = int32(len(b.vocabulary))
			b.vocabulary[string(feature)] = i
		}
		b.counts[[2]int32{i, class}]++
		b.total[class]++
	})
}

// takeLogs ends the learning.
func (b *naiveBayes) takeLogs() {
	b.logs = make([][]classLog, len(b.vocabulary))
	for key, n := range b.counts {
		b.logs[key[0]] = append(b.logs[key[0]], classLog{key[1], math.Log(n + 1)})
	}
	b.counts = nil
}

// classScores returns for each class ln of its share of the samples times the probability
// of the features in it, valid until the next call.
func (b *naiveBayes) classScores(features func(f func([]byte))) []float64 {
	known := 0.
	clear(b.score)
	features(func(feature []byte) {
		if i, ok := b.vocabulary[string(feature)]; ok {
			known++
			for _, x := range b.logs[i] {
				b.score[x.class] += x.log
			}
		}
	})
	all := 0.
	for _, n := range b.samples {
		all += n
	}
	for c := range b.score {
		b.score[c] += math.Log(b.samples[c]/all) - known*math.Log(b.total[c]+float64(len(b.vocabulary)))
	}
	return b.score
}

// scoreNaiveBayes scores a naive Bayes classifier over how often features appear, which
// features calls back with.
func scoreNaiveBayes(name string, src Source, n int, features func(s *Sample, f func([]byte))) (Baseline, error) {
	spec := src.Spec()
	bayes := newNaiveBayes(spec.Classes)
	learned, err := eachSample(src, Train, n, func(s *Sample) {
		bayes.addSample(s.Class, func(f func([]byte)) { features(s, f) })
	})
	if err != nil {
		return Baseline{}, err
	}
	bayes.takeLogs()
	return scoreClasses(name, src, n, learned, func(s *Sample) int {
		return argMax(bayes.classScores(func(f func([]byte)) { features(s, f) }))
	})
}

// eachWord calls f with each word of a text of bytes, which are one less than their
// tokens: a run of letters of ASCII, small ones for capitals, and of bytes beyond.
func eachWord(tokens []int32, f func([]byte)) {
	var word []byte
	for i := 0; i <= len(tokens); i++ {
		b := byte(' ')
		if i < len(tokens) {
			b = byte(tokens[i] - 1)
		}
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		if b >= 'a' && b <= 'z' || b >= 0x80 {
			word = append(word, b)
		} else if len(word) > 0 {
			f(word)
			word = word[:0]
		}
	}
}
