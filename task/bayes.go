package task

import (
	"math"
	"slices"
)

// threshold returns where to cut x so that most y are on their side: class 1
// above it, or below.
func threshold(x []float64, y []int32) (at float64, above bool) {
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

// byBayes scores a naive Bayes classifier over how often features appear, with
// one added to each count (Manning, Raghavan and Schütze 2008, section 13.2).
// features calls back with numbers below buckets.
func byBayes(name string, src Source, n, buckets int, features func(s *Sample, f func(uint32))) (Baseline, error) {
	spec := src.Spec()
	counts := make([][]float64, spec.Classes)
	total := make([]float64, spec.Classes)
	samples := make([]float64, spec.Classes)
	for c := range counts {
		counts[c] = make([]float64, buckets)
	}
	err := each(src, Train, n, func(s *Sample) {
		samples[s.Class]++
		features(s, func(f uint32) {
			counts[s.Class][f]++
			total[s.Class]++
		})
	})
	if err != nil {
		return Baseline{}, err
	}
	for c := range counts {
		for f := range counts[c] {
			counts[c][f] = math.Log((counts[c][f] + 1) / (total[c] + float64(buckets)))
		}
	}
	score := make([]float64, spec.Classes)
	right, judged := 0, 0
	err = each(src, spec.Judged(), n, func(s *Sample) {
		for c := range score {
			score[c] = math.Log(samples[c])
		}
		features(s, func(f uint32) {
			for c := range score {
				score[c] += counts[c][f]
			}
		})
		best := 0
		for c := range score {
			if score[c] > score[best] {
				best = c
			}
		}
		judged++
		if best == int(s.Class) {
			right++
		}
	})
	return Baseline{name, share(right, judged)}, err
}

// wordBuckets is the number of features that words fall into.
const wordBuckets = 1 << 18

// words calls f with a number of each word of a text of bytes, of which each is
// one more than its token: a run of letters of ASCII, whatever their case, and
// of bytes beyond.
func words(tokens []int32, f func(uint32)) {
	const start = 2166136261 // FNV-1a
	hash, in := uint32(start), false
	for i := 0; i <= len(tokens); i++ {
		b := byte(' ')
		if i < len(tokens) {
			b = byte(tokens[i] - 1)
		}
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		if b >= 'a' && b <= 'z' || b >= 0x80 {
			hash, in = (hash^uint32(b))*16777619, true
		} else if in {
			f((hash ^ hash>>18) % wordBuckets)
			hash, in = start, false
		}
	}
}
