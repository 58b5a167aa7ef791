package task

import (
	"strconv"

	"github.com/farfield-ml/farfield/rng"
)

// InventText returns a text of at least size bytes, which depends on the seed alone. Its lines are
// correct sums, nested lists with their largest element, and sentences whose verbs agree with their
// subjects. To predict any of them, a model needs more context than two characters.
func InventText(seed uint64, size int) *Corpus {
	w := &inventor{key: rng.New(seed)}
	for len(w.text) < size {
		switch w.drawNumber(3) {
		case 0:
			w.writeSum()
		case 1:
			most := w.writeList(0)
			w.text = append(w.text, " has "...)
			w.text = strconv.AppendInt(w.text, int64(most), 10)
		case 2:
			w.writeSentence()
		}
		w.text = append(w.text, '\n')
	}
	return &Corpus{Name: "a text of sums, lists and sentences that the program wrote itself", Text: w.text}
}

// inventor writes the lines of InventText.
type inventor struct {
	key  rng.Key
	next uint64
	text []byte
}

// drawNumber returns a random number 0 ≤ x < n.
func (w *inventor) drawNumber(n int) int {
	w.next++
	return w.key.Intn(w.next, n)
}

// writeSum writes two numbers and their sum.
func (w *inventor) writeSum() {
	a, b := w.drawNumber(100), w.drawNumber(100)
	w.text = strconv.AppendInt(w.text, int64(a), 10)
	w.text = append(w.text, " + "...)
	w.text = strconv.AppendInt(w.text, int64(b), 10)
	w.text = append(w.text, " = "...)
	w.text = strconv.AppendInt(w.text, int64(a+b), 10)
}

// writeList writes a nested list and returns its largest digit.
func (w *inventor) writeList(depth int) int {
	most := 0
	w.text = append(w.text, '[')
	for i := range 2 + w.drawNumber(3) {
		if i > 0 {
			w.text = append(w.text, ' ')
		}
		x := 0
		if depth < 3 && w.drawNumber(4) == 0 {
			x = w.writeList(depth + 1)
		} else {
			x = w.drawNumber(10)
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

// writeSentence writes a sentence whose verb agrees with its subject.
func (w *inventor) writeSentence() {
	plural := w.drawNumber(2) == 1
	w.text = append(w.text, "The "...)
	w.writeNoun(plural)
	if w.drawNumber(2) == 1 {
		w.text = append(w.text, " near the "...)
		w.writeNoun(w.drawNumber(2) == 1)
	}
	w.text = append(w.text, ' ')
	w.text = append(w.text, verbs[w.drawNumber(len(verbs))]...)
	if !plural {
		w.text = append(w.text, 's')
	}
	w.text = append(w.text, " the "...)
	w.writeNoun(w.drawNumber(2) == 1)
	w.text = append(w.text, '.')
}

// writeNoun writes a noun, after a colour half of the time.
func (w *inventor) writeNoun(plural bool) {
	if w.drawNumber(2) == 1 {
		w.text = append(w.text, colours[w.drawNumber(len(colours))]...)
		w.text = append(w.text, ' ')
	}
	w.text = append(w.text, nouns[w.drawNumber(len(nouns))]...)
	if plural {
		w.text = append(w.text, 's')
	}
}
