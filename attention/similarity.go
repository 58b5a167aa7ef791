package attention

// Similarity is any weight f of a score, with its derivative. It has the direct
// form alone: only polynomials have sums that stand for their keys. Both
// functions set every element of dst, which may be s itself, from that of s,
// and may be called concurrently. Queries and keys that do not see each other
// are asked for too; what comes of them is not used.
type Similarity[T any] struct {
	F     func(dst, s []T)
	Slope func(dst, s []T) // f′
}

// pairwise reports that weights are computed pair by pair alone, so that a
// state keeps all keys.
func (s *Spec[T]) pairwise() bool { return s.Exp || s.Similarity != nil }

// weigh sets the first n elements of the rows of dst (stride ld), of which there
// are as many as sums, to the weights of scores s, and adds them up.
func (u *unit[T]) weigh(dst, s []T, ld, n int, coef, sum []T) {
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
func (u *unit[T]) slopes(dst, s []T, ld, n int, slope, sum []T) {
	f := u.spec.Similarity
	if f == nil {
		u.t.PolyRows(dst, s, ld, n, slope, sum)
		return
	}
	for r := range sum {
		f.Slope(dst[r*ld:][:n], s[r*ld:][:n])
	}
}
