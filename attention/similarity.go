package attention

// Similarity is any weight f of a score, with its derivative. It has the direct form
// alone, because only polynomials have sums in place of their keys. Both functions set
// every element of dst from the element of s. dst may be s. They may be called
// concurrently. They are also called for masked pairs, whose results are not used.
type Similarity[T any] struct {
	F     func(dst, s []T)
	Slope func(dst, s []T) // f′
}

// isPairwise reports that weights are computed pair by pair alone, so that a
// state keeps all keys.
func (s *Spec[T]) isPairwise() bool { return s.Exp || s.Similarity != nil }

// weigh sets the first n elements of each row of dst (stride ld) to the weights of
// scores s, and adds them to sum, one element for each row.
func (u directForm[T]) weigh(dst, s []T, ld, n int, coef, sum []T) {
	f := u.spec.Similarity
	if f == nil {
		u.t.PolyRows(dst, s, ld, n, coef, sum)
		return
	}
	for r := range sum {
		row := dst[r*ld:][:n]
		f.F(row, s[r*ld:][:n])
		sum[r] += u.t.Sum(row)
	}
}

// slopes is weigh for derivatives; sum is scratch.
func (u directForm[T]) slopes(dst, s []T, ld, n int, slope, sum []T) {
	f := u.spec.Similarity
	if f == nil {
		u.t.PolyRows(dst, s, ld, n, slope, sum)
		return
	}
	for r := range sum {
		f.Slope(dst[r*ld:][:n], s[r*ld:][:n])
	}
}
