package headtask

// Dropout of products runs on rows that hold them, (1, x, x⊗x): f(a·b) = c₀ +
// c₁·s + c₂·s² is one scalar product of two of them, so that a kernel f(s) = s
// with this feature map has both forms, and the masks lie on mapped rows.

// Products is the feature map 1, x and all products of two elements of x.
type Products struct {
	Coef [3]float64 // c₀, c₁ and c₂, which multiply the rows of queries by degree
}

// Dim returns the width of the mapped row.
func (Products) Dim(d int) int { return 1 + d + d*d }

// Map sets dst [1+D+D²] to 1, x [D] and the products of its elements.
func (Products) Map(dst, x []float) {
	dst[0] = 1
	dst = dst[1+copy(dst[1:], x):]
	for _, a := range x {
		for l, b := range x {
			dst[l] = a * b
		}
		dst = dst[len(x):]
	}
}

// Grad sets dx [D] from the gradient dy [1+D+D²] of the mapped row of x [D].
func (Products) Grad(dx, dy, x []float) {
	d := len(x)
	copy(dx, dy[1:])
	dy = dy[1+d:]
	for m, a := range x {
		row := dy[m*d:][:d]
		var sum float
		for l, b := range x {
			sum += row[l] * b
			dx[l] += row[l] * a
		}
		dx[m] += sum
	}
}

// DropProducts multiplies a mapped row [1+D+D²], of token i with d channels, by the
// coefficients and its products by the mask.
func DropProducts(m *HeadDropout, row []float, d, i int) {
	row[0] *= float(m.Coef[0])
	for c := range d {
		row[1+c] *= float(m.Coef[1])
	}
	bits := m.Token(i, d*d)
	for c := range d * d {
		row[1+d+c] *= float(m.Coef[2] * bits.Next())
	}
}
