package pretrained

import (
	"fmt"

	"github.com/farfield-ml/farfield/model"
)

// positionName is the parameter of learned positions.
const positionName = "position.weight"

// maxStretch bounds the factor by which a table of positions is stretched.
const maxStretch = 16

// stretchedTable describes a table of learned positions with stretched copies behind it:
// copy f has f times the positions, for f = 2, 4, … maxStretch.
type stretchedTable struct {
	rows   int // of the table itself; 0: it is not stretched
	first  int // row of the first position
	length int // positions of the table
}

// plan enlarges the table of a plan.
func (t *stretchedTable) plan(p *plan) {
	c := &p.config
	if c.Positions != model.Learned || c.Kind != model.Encoder || c.Inputs > 0 {
		return
	}
	t.rows, t.first, t.length = c.Context+c.PositionOffset, c.PositionOffset, c.Context
	if c.PositionTable > 0 {
		t.rows = c.PositionTable
	}
	c.PositionTable = t.rows + t.length*(2*maxStretch-2)
	c.Context = t.length * maxStretch
}

// fill sets the stretched copies by linear interpolation.
func (t *stretchedTable) fill(m *model.Model[float32]) {
	if t.rows == 0 {
		return
	}
	p, err := m.Params().Get(positionName)
	if err != nil {
		return
	}
	w := p.Shape[1]
	t.eachRow(func(row, low int, share float32) {
		a, b := p.Data[low*w:][:w], p.Data[min(low+1, t.rows-1)*w:][:w]
		for j := range a {
			p.Data[row*w+j] = (1-share)*a[j] + share*b[j]
		}
	})
}

// eachRow calls f with every stretched row: it is 1-share of row low and share of the next.
func (t *stretchedTable) eachRow(f func(row, low int, share float32)) {
	at := t.rows
	for factor := 2; factor <= maxStretch; factor *= 2 {
		n := factor * t.length
		for i := range n {
			x := float64(i) * float64(t.length-1) / float64(n-1)
			low := int(x)
			f(at+i, t.first+low, float32(x-float64(low)))
		}
		at += n
	}
}

// firstRow returns the row of the first position of sequences of n tokens. It returns an
// error if no table is long enough.
func (t *stretchedTable) firstRow(n int) (int, error) {
	if n <= t.length {
		return t.first, nil
	}
	at := t.rows
	for factor := 2; factor <= maxStretch; factor *= 2 {
		if n <= factor*t.length {
			return at, nil
		}
		at += factor * t.length
	}
	return 0, fmt.Errorf("positions: %d are needed, the learned table has %d and is stretched to %d", n, t.length, maxStretch*t.length)
}
