package reproduce

import "math"

// ledger lends buffers and counts the numbers that are lent at once.
type ledger struct {
	held, peak int
}

func (l *ledger) take(n int) []float32 {
	l.held += n
	l.peak = max(l.peak, l.held)
	return make([]float32, n)
}

func (l *ledger) drop(buffers ...[]float32) {
	for _, b := range buffers {
		l.held -= len(b)
	}
}

// directTaylorShift is TaylorShift (Nauen et al. 2024, section 3) with every
// intermediate result written down, as a program of matrix operations has it,
// for rows q and k of length 1, all [n,d]. Beyond the output it holds the
// values, the scores and what the polynomial makes of them.
func directTaylorShift(out, q, k, v []float32, n, d int, l *ledger) {
	values := l.take(n * d)
	copy(values, v)
	scores := l.take(n * n)
	for i := range n {
		for j := range n {
			scores[i*n+j] = inner(q[i*d:(i+1)*d], k[j*d:(j+1)*d])
		}
	}
	weights := l.take(n * n)
	for i, s := range scores {
		weights[i] = 1 + s + s*s/2
	}
	l.drop(scores)
	for i := range n {
		sum, row := float32(0), out[i*d:(i+1)*d]
		clear(row)
		for j := range n {
			w := weights[i*n+j]
			sum += w
			add(row, w, values[j*d:(j+1)*d])
		}
		for c := range row {
			row[c] /= sum
		}
	}
	l.drop(weights, values)
}

// efficientTaylorShift is the same in the order that is linear in n. Where it
// holds most, it holds queries, keys, values beside a column of ones, the
// products of two channels of each key, their moments, and denominators.
func efficientTaylorShift(out, q, k, v []float32, n, d int, l *ledger) {
	queries, keys, values := l.take(n*d), l.take(n*d), l.take(n*(d+1))
	copy(queries, q)
	copy(keys, k)
	for j := range n {
		values[j*(d+1)] = 1
		copy(values[j*(d+1)+1:(j+1)*(d+1)], v[j*d:])
	}
	products := l.take(n * d * d)
	square(products, keys, n, d)
	second := l.take(d * d * (d + 1))
	for j := range n {
		for f, x := range products[j*d*d : (j+1)*d*d] {
			add(second[f*(d+1):(f+1)*(d+1)], x, values[j*(d+1):(j+1)*(d+1)])
		}
	}
	square(products, queries, n, d) // in the place of the keys'
	den := l.take(n)
	clear(out)
	for i := range n {
		for f, x := range products[i*d*d : (i+1)*d*d] {
			row := second[f*(d+1) : (f+1)*(d+1)]
			den[i] += x / 2 * row[0]
			add(out[i*d:(i+1)*d], x/2, row[1:])
		}
	}
	l.drop(products, second)
	first, zeroth := l.take(d*(d+1)), l.take(d+1)
	for j := range n {
		row := values[j*(d+1) : (j+1)*(d+1)]
		for f, x := range keys[j*d : (j+1)*d] {
			add(first[f*(d+1):(f+1)*(d+1)], x, row)
		}
		add(zeroth, 1, row)
	}
	for i := range n {
		row := out[i*d : (i+1)*d]
		for f, x := range queries[i*d : (i+1)*d] {
			den[i] += x * first[f*(d+1)]
			add(row, x, first[f*(d+1)+1:(f+1)*(d+1)])
		}
		add(row, 1, zeroth[1:])
		for c := range row {
			row[c] /= den[i] + zeroth[0]
		}
	}
	l.drop(first, zeroth, den, queries, keys, values)
}

// square sets p [n,d·d] to the products of two channels of each row of x [n,d].
func square(p, x []float32, n, d int) {
	for i := range n {
		row := x[i*d : (i+1)*d]
		for a, v := range row {
			for b, w := range row {
				p[(i*d+a)*d+b] = v * w
			}
		}
	}
}

func inner(a, b []float32) (sum float32) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// add adds s·x to y.
func add(y []float32, s float32, x []float32) {
	for i := range y {
		y[i] += s * x[i]
	}
}

// unit scales the rows of x [n,d] to length 1.
func unit(x []float32, d int) {
	for ; len(x) > 0; x = x[d:] {
		s := float32(1 / math.Sqrt(float64(inner(x[:d], x[:d]))))
		for i := range d {
			x[i] *= s
		}
	}
}
