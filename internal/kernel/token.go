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
func renewGo[T Float](count, n, k int, c []T, crs int, a, q, x []T, ars int, y []T, yrs int, b []T, brs int, z []T, next int, c0, c1 T, totals, w []T) {
	if n%Lanes != 0 {
		panic(errWhole)
	}
	for i := 0; i < count && n > 0 && k > 0; i++ {
		a, q, x := a[i*ars:][:k], q[i*ars:][:k], x[i*ars:][:k]
		y, b, z, c := y[i*yrs:][:n], b[i*next:], z[i*next:][:k], c[i*crs:][:n]
		var score, sum T
		for p := range k {
			score += T(q[p] * x[p])
			sum += T(a[p] * z[p])
		}
		w[i] = c1*score + c0 // as PolyRows has it
		totals[i] = w[i] + sum
		for j := range c {
			var s T
			for p := range k {
				s += T(a[p] * b[p*brs+j])
			}
			c[j] = T(w[i]*y[j]) + s
		}
		for p, e := range x {
			row := b[p*brs:][:n]
			for j := range row {
				row[j] += T(e * y[j])
			}
			z[p] += e
		}
	}
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
