package runs

import "math"

// Confidence is the probability that none of a table's comparisons finds a difference where there
// is none.
const Confidence = 0.95

// manySeeds is the degrees of freedom from which a variance counts as known.
const manySeeds = 1000

// criticalFactor returns how many standard errors lie between scores that differ: the two-sided
// quantile of Student's t with the degrees of freedom, corrected for a number of comparisons
// (Bonferroni). One comparison with a known variance has 2.
func criticalFactor(freedom float64, comparisons int) float64 {
	comparisons = max(comparisons, 1)
	if freedom >= manySeeds && comparisons == 1 {
		return 2
	}
	want := 1 - (1-Confidence)/float64(comparisons)
	degrees := max(int(min(freedom, manySeeds)+1e-9), 1)
	low, high := 0., 1e6
	for range 80 {
		middle := (low + high) / 2
		if centralStudent(middle, degrees) < want {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// centralStudent returns the probability that Student's t with n degrees of freedom lies between -t and
// t (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).
func centralStudent(t float64, n int) float64 {
	if n >= manySeeds {
		return math.Erf(t / math.Sqrt2)
	}
	angle := math.Atan(t / math.Sqrt(float64(n)))
	square := math.Cos(angle) * math.Cos(angle)
	if n%2 == 0 {
		sum, term := 1., 1.
		for k := 2; k < n; k += 2 {
			term *= square * float64(k-1) / float64(k)
			sum += term
		}
		return math.Sin(angle) * sum
	}
	sum, term := 0., 1.
	for k := 1; k < n; k += 2 {
		if k > 1 {
			term *= square * float64(k-1) / float64(k)
		}
		sum += term
	}
	return 2 / math.Pi * (angle + math.Sin(angle)*math.Cos(angle)*sum)
}
