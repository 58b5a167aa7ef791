package task

import (
	"errors"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/rng"
)

// Needle asks for values that lines of a long text give to keys. A line such as "key KQZT is 4821"
// replaces some bytes of the text. The same line appears a second time further on, where the bytes
// of the value have labels. Each split has its own text and its own keys. A window has several
// lines, so that the last value is seldom the answer.
type Needle struct {
	Lines    int // number of keys in a window; fewer if it is short
	Distance int // tokens from a line to its question, if the window is long enough; 0: random
	Seed     uint64

	text   *Text
	length int // tokens of a window
}

const (
	needleLetters  = 4 // of a key
	needleDigits   = 4 // of a value
	needlePrefix   = 13
	needleSlot     = 24 // tokens that a line may lie in; distances are multiples
	needleTokens   = 64 // tokens of a window for each line
	needleDistance = 512
	needleLength   = 4096
	needleLeast    = 4 * needleSlot
)

// needleKeys is the number of keys of a split: the keys with one remainder modulo 3.
const needleKeys = 26 * 26 * 26 * 26 / 3

var needleSettings = []Setting{
	{"data", "", "the text around the lines, as of " + ByteLM},
	{"length", fmt.Sprint(needleLength), "tokens of a window, for callers of the library; train takes --context"},
	{"lines", "16", "lines of a window, at most one for each 64 tokens"},
	{"distance", "0", "tokens from a line to its question; 0: drawn from 512, or a quarter of a shorter window, to all of the window, evenly in the logarithm"},
}

func openNeedle(o *settingsReader) (Source, error) {
	c, err := ReadText(o.text("data"), o.Folder, token.KindBytes, false)
	if err != nil {
		return nil, err
	}
	t, err := NewNeedle(Needle{Lines: o.int("lines"), Distance: o.int("distance"), Seed: o.Seed}, c, o.int("length"))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return t, nil
}

// NewNeedle returns a generator of t's samples in windows of length tokens of a text. It
// returns an error if a field is out of range or the text is too short.
func NewNeedle(t Needle, c *Corpus, length int) (*Needle, error) {
	if err := checkRange("length", length, needleLeast, 1<<24); err != nil {
		return nil, err
	}
	if err := checkRange("lines", t.Lines, 1, 1<<12); err != nil {
		return nil, err
	}
	if err := checkRange("distance", t.Distance, 0, length-2*needleSlot); err != nil {
		return nil, err
	}
	text, err := NewText(c, token.NewByteVocabulary())
	if err != nil {
		return nil, err
	}
	text.halveValidation()
	t.text, t.length = text, length
	return &t, nil
}

// Spec returns the specification of the samples.
func (t *Needle) Spec() Spec {
	vocab := t.text.Vocab.Size()
	return Spec{Name: "needle", Kind: Next, Metric: Accuracy, Vocab: vocab, Length: t.length, Parts: 1, Classes: vocab,
		Count: [3]int{Endless, Endless, Endless}}
}

// WithWindow returns the same task with windows of length tokens.
func (t *Needle) WithWindow(length int) WindowSource {
	w := *t
	w.length = length
	return &w
}

// shortenWindow returns the same task with windows that are shorter than the text of each
// split.
func (t *Needle) shortenWindow() *Needle {
	w := *t
	for _, part := range t.text.parts {
		w.length = min(w.length, part.Len()-1)
	}
	return &w
}

// Sample overwrites s with a window. It returns an error if the split has no sample i, or its
// text is not longer than a window.
func (t *Needle) Sample(s *Sample, split Split, i int) error {
	spec := t.Spec()
	if err := spec.CheckIndex(split, i); err != nil {
		return err
	}
	return t.draw(s, split, t.length, newDraws(t.Seed, split, i))
}

// DrawWindow overwrites s with a training window, which depends on key and i alone. It returns an
// error if the training set is not longer than length.
func (t *Needle) DrawWindow(s *Sample, length int, key rng.Key, i uint64) error {
	return t.draw(s, Train, length, &randomDraws{key: key.Fold(i)})
}

// draw overwrites s with a window of a split.
func (t *Needle) draw(s *Sample, split Split, length int, d *randomDraws) error {
	part := t.text.parts[split]
	if length < needleLeast || part.Len() <= length {
		return fmt.Errorf("context: %d tokens; from %d to less than the %d tokens of the text's part %v are possible", length, needleLeast, part.Len(), split)
	}
	resetSample(s)
	at := d.intn(part.Len() - length)
	s.Tokens = part.Append(s.Tokens, at, at+length)
	for range length {
		s.Labels = append(s.Labels, -1)
	}
	lines := max(1, min(t.Lines, length/needleTokens))
	keys := make([]int, lines)
	d.chooseDistinct(keys, needleKeys)
	shift := d.intn(needleSlot)
	slots := make([]bool, (length-shift)/needleSlot)
	for _, key := range keys {
		line, question, found := t.choosePlaces(slots, length, d)
		if !found {
			break
		}
		slots[line], slots[question] = true, true
		text := appendNeedle(nil, 3*key+int(split), d.intn(10000))
		for j, x := range text {
			s.Tokens[shift+line*needleSlot+j] = int32(x)
			s.Tokens[shift+question*needleSlot+j] = int32(x)
		}
		value := shift + question*needleSlot + needlePrefix
		for j := range needleDigits {
			s.Labels[value+j-1] = s.Tokens[value+j]
		}
	}
	return nil
}

// choosePlaces draws free slots of a line and its question.
func (t *Needle) choosePlaces(taken []bool, length int, d *randomDraws) (line, question int, found bool) {
	most := len(taken) - 1
	least := min((min(needleDistance, length/4)+needleSlot-1)/needleSlot, most)
	draw := func() int {
		return min(most, int(float64(least)*math.Pow(float64(most+1)/float64(least), d.float())))
	}
	if t.Distance > 0 {
		fixed := max(1, min(most, (t.Distance+needleSlot/2)/needleSlot))
		draw, least, most = func() int { return fixed }, fixed, fixed
	}
	const tries = 64
	for range tries {
		apart := draw()
		line = d.intn(len(taken) - apart)
		if question = line + apart; !taken[line] && !taken[question] {
			return line, question, true
		}
	}
	for apart := most; apart >= least; apart-- {
		for line = range len(taken) - apart {
			if question = line + apart; !taken[line] && !taken[question] {
				return line, question, true
			}
		}
	}
	return 0, 0, false
}

// appendNeedle appends the line of a key and a value.
func appendNeedle(text []byte, key, value int) []byte {
	letters := make([]byte, needleLetters)
	for j := range letters {
		letters[needleLetters-1-j] = 'A' + byte(key%26)
		key /= 26
	}
	return fmt.Appendf(text, "\nkey %s is %0*d\n", letters, needleDigits, value)
}

// NeedlePlace says where a question of a Needle and its answer are.
type NeedlePlace struct {
	Line     int // position of the first byte of the value in the line
	Question int // position of the first byte of the value in the question
}

// Distance returns the number of tokens from the line to the question.
func (p *NeedlePlace) Distance() int { return p.Question - p.Line }

// FindNeedles returns the places of the questions in a sample of Needle, in order.
func FindNeedles(s *Sample) (list []NeedlePlace) {
	for i, y := range s.Labels {
		if y < 0 || i+1 < needlePrefix || s.Labels[i-1] >= 0 {
			continue
		}
		if line := findLine(s.Tokens[:i], s.Tokens[i+1-needlePrefix:i+1]); line >= 0 {
			list = append(list, NeedlePlace{line + needlePrefix, i + 1})
		}
	}
	return list
}

// findLine returns the first position of a line's beginning in tokens, -1 if there is none.
func findLine(tokens, prefix []int32) int {
	for at := range max(0, len(tokens)-len(prefix)) {
		same := true
		for j := len(prefix) - 1; j >= 0 && same; j-- {
			same = tokens[at+j] == prefix[j]
		}
		if same {
			return at
		}
	}
	return -1
}

// Baselines scores the commonest byte of values and the value of the line or question before.
// It returns the errors of Sample.
func (t *Needle) Baselines(n int) ([]Baseline, error) {
	if n == 0 {
		n = endlessSamples / needleTokens
	}
	return runBaselines(
		func() (Baseline, error) { return scoreMajorityLabel(t, n) },
		func() (Baseline, error) { return scoreLabels("value of the line before", t, n, 0, lastValue) },
	)
}

// lastValue returns the byte of the value that stands before a question, at the same place in
// the value; -1 if there is none.
func lastValue(s *Sample, position int) int32 {
	first := position
	for first > 0 && s.Labels[first-1] >= 0 {
		first--
	}
	mark := s.Tokens[first+1-needlePrefix : first+1-needlePrefix+5] // "\nkey "
	for at := first + 1 - needlePrefix - needlePrefix - needleDigits; at >= 0; at-- {
		same := true
		for j := range mark {
			same = same && s.Tokens[at+j] == mark[j]
		}
		if same {
			return s.Tokens[at+needlePrefix+position-first]
		}
	}
	return -1
}
