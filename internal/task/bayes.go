package task

import (
	"math"
	"slices"
	"unicode"
	"unicode/utf8"
)

// findThreshold returns the threshold of x [N] that classifies the labels y [N] best. Class 1
// lies above the threshold if above is set, otherwise below.
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
	// Below every x: all samples lie above, and the samples of class 1 are right.
	at, above = math.Inf(-1), true
	best, right := ones, ones
	if len(y)-ones > best {
		best, above = len(y)-ones, false
	}
	for k, i := range order {
		right += 1 - 2*int(y[i]) // x[i] moves below the threshold
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
// (Manning, Raghavan and Schütze 2008, section 13.2). Features that no training sample has
// are ignored.
type naiveBayes struct {
	vocabulary map[string]int32
	counts     map[[2]int32]float64 // by feature and class; nil after takeLogs
	logs       [][]classLog         // by feature, for the classes that have it
	samples    []float64            // [classes] training samples
	total      []float64            // [classes] training features
	score      []float64            // [classes]
}

// classLog holds ln(count + 1) of a feature in a class.
type classLog struct {
	class int32
	log   float64
}

// newNaiveBayes returns a classifier without samples.
func newNaiveBayes(classes int) *naiveBayes {
	return &naiveBayes{vocabulary: map[string]int32{}, counts: map[[2]int32]float64{},
		samples: make([]float64, classes), total: make([]float64, classes), score: make([]float64, classes)}
}

// addSample counts a training sample of a class; features calls f with each feature.
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

// takeLogs replaces counts by their logarithms. addSample must not follow.
func (b *naiveBayes) takeLogs() {
	b.logs = make([][]classLog, len(b.vocabulary))
	for key, n := range b.counts {
		b.logs[key[0]] = append(b.logs[key[0]], classLog{key[1], math.Log(n + 1)})
	}
	b.counts = nil
}

// classScores returns ln P(class) + Σ ln P(feature|class) by class [classes]. The result is
// overwritten by the next call.
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
		b.score[c] += math.Log(b.samples[c] / all)
		if known > 0 { // the vocabulary may be empty
			b.score[c] -= known * math.Log(b.total[c]+float64(len(b.vocabulary)))
		}
	}
	return b.score
}

// scoreNaiveBayes scores a naive Bayes classifier over counts of features; features calls f
// with each feature of a sample.
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

// eachWord calls f with each word of a text, whose tokens are bytes plus one. A word is a run
// of ASCII letters, in lower case, and of bytes from 0x80. f must not keep the word.
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

// eachTextWord calls f with each word of a text, whose tokens are bytes plus one. A word is a
// run of two or more letters, digits and underscores, in lower case. f must not keep the word.
func eachTextWord(tokens []int32, f func([]byte)) {
	var word, character []byte
	count := 0 // characters of word
	end := func() {
		if count > 1 {
			f(word)
		}
		word, count = word[:0], 0
	}
	for i := 0; i < len(tokens); {
		character = character[:0]
		for _, t := range tokens[i:min(i+utf8.UTFMax, len(tokens))] {
			character = append(character, byte(t-1))
		}
		r, size := utf8.DecodeRune(character)
		i += size
		if !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '_' {
			end()
			continue
		}
		word = utf8.AppendRune(word, unicode.ToLower(r))
		count++
	}
	end()
}
