package task

import (
	"strconv"

	"github.com/farfield-ml/farfield/rng"
)

// Invent writes about size bytes of text, the same for the same seed: sums that
// are right, nested lists with their largest element, and sentences whose verbs
// agree with their subjects. Each has something that the last two characters do
// not tell.
func Invent(seed uint64, size int) *Corpus {
	w := &inventor{key: rng.New(seed)}
	for len(w.text) < size {
		switch w.pick(3) {
		case 0:
			w.sum()
		case 1:
			most := w.list(0)
			w.text = append(w.text, " has "...)
			w.text = strconv.AppendInt(w.text, int64(most), 10)
		case 2:
			w.sentence()
		}
		w.text = append(w.text, '\n')
	}
	return &Corpus{Name: "a text of sums, lists and sentences that the program wrote itself", Text: w.text}
}

type inventor struct {
	key  rng.Key
	next uint64
	text []byte
}

// pick returns a number 0 ≤ x < n.
func (w *inventor) pick(n int) int {
	w.next++
	return w.key.Intn(w.next, n)
}

func (w *inventor) sum() {
	a, b := w.pick(100), w.pick(100)
	w.text = strconv.AppendInt(w.text, int64(a), 10)
	w.text = append(w.text, " + "...)
	w.text = strconv.AppendInt(w.text, int64(b), 10)
	w.text = append(w.text, " = "...)
	w.text = strconv.AppendInt(w.text, int64(a+b), 10)
}

// list writes a list and returns its largest digit.
func (w *inventor) list(depth int) int {
	most := 0
	w.text = append(w.text, '[')
	for i := range 2 + w.pick(3) {
		if i > 0 {
			w.text = append(w.text, ' ')
		}
		x := 0
		if depth < 3 && w.pick(4) == 0 {
			x = w.list(depth + 1)
		} else {
			x = w.pick(10)
			w.text = strconv.AppendInt(w.text, int64(x), 10)
		}
		most = max(most, x)
	}
	w.text = append(w.text, ']')
	return most
}

var (
	nouns   = [...]string{"river", "reader", "lamp", "stone", "teacher", "garden", "letter", "ship"}
	verbs   = [...]string{"follow", "answer", "cover", "move", "find", "need"}
	colours = [...]string{"old", "small", "quiet", "green", "heavy"}
)

func (w *inventor) sentence() {
	plural := w.pick(2) == 1
	w.text = append(w.text, "The "...)
	w.noun(plural)
	if w.pick(2) == 1 {
		w.text = append(w.text, " near the "...)
		w.noun(w.pick(2) == 1)
	}
	w.text = append(w.text, ' ')
	w.text = append(w.text, verbs[w.pick(len(verbs))]...)
	if !plural {
		w.text = append(w.text, 's')
	}
	w.text = append(w.text, " the "...)
	w.noun(w.pick(2) == 1)
	w.text = append(w.text, '.')
}

func (w *inventor) noun(plural bool) {
	if w.pick(2) == 1 {
		w.text = append(w.text, colours[w.pick(len(colours))]...)
		w.text = append(w.text, ' ')
	}
	w.text = append(w.text, nouns[w.pick(len(nouns))]...)
	if plural {
		w.text = append(w.text, 's')
	}
}
