package kernel

// mixGo sums as Block does, and the last column as Block does too.
func mixGo[T Float](c, a []T, step int, b []T, brs int, z []T, total T) T {
	for p := 0; p < len(a); p += step {
		part := a[p:min(p+step, len(a))]
		blockGo(1, len(c), len(part), part, 0, 1, b[p*brs:], brs, c, 0, true)
		if z == nil {
			continue
		}
		var sum T
		for i, x := range z[p:][:len(part)] {
			sum += T(part[i] * x)
		}
		total += sum
	}
	return total
}

const errWhole = "kernel: n is not a multiple of Lanes"

// renewGo multiplies as Block does, and so it adds products.
func renewGo[T Float](c, a, q, x, y, b []T, brs int, z []T, c0, c1 T) (sum T) {
	if len(c)%Lanes != 0 {
		panic(errWhole)
	}
	if len(a) == 0 || len(c) == 0 {
		return 0
	}
	var score T
	for p := range a {
		score += T(q[p] * x[p])
		sum += T(a[p] * z[p])
	}
	w := c1*score + c0 // as PolyRows has it
	for j := range c {
		var s T
		for p := range a {
			s += T(a[p] * b[p*brs+j])
		}
		c[j] = T(w*y[j]) + s
	}
	for p, k := range x[:len(a)] {
		row := b[p*brs:][:len(c)]
		for j := range row {
			row[j] += T(k * y[j])
		}
		z[p] += k
	}
	return w + sum
}

func featureRowGo[T Float](dst, w []T, s T, x []T, rows int) {
	for r := range rows {
		f := s * x[r]
		for i, y := range x[r:] {
			dst[i] = f * y * w[i]
		}
		dst, w = dst[len(x)-r:], w[len(x)-r:]
	}
}

// rowFeatures is the number of products of the first rows runs of n numbers.
func rowFeatures(n, rows int) int { return rows * (2*n - rows + 1) / 2 }
