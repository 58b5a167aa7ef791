package dataset

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// Review is one of IMDB's film reviews.
type Review struct {
	Positive bool
	Name     string // number_rating
	Film     string // IMDB's title id
	Text     []byte
}

// ReadReviews reads a review from each line: 0 or 1, name, film and text, with a
// tab between them; the text may hold further tabs.
func ReadReviews(r io.Reader) ([]Review, error) {
	var list []Review
	return list, lines(r, func(_ int, line []byte) error {
		f := bytes.SplitN(line, []byte("\t"), 4)
		if len(f) != 4 {
			return fmt.Errorf("it has %d fields, 4 are needed", len(f))
		}
		if len(f[0]) != 1 || f[0][0]|1 != '1' {
			return fmt.Errorf("label: it is %.20q, 0 or 1 is needed", f[0])
		}
		if len(f[3]) == 0 {
			return fmt.Errorf("text: it is empty")
		}
		list = append(list, Review{f[0][0] == '1', string(f[1]), string(f[2]), bytes.Clone(f[3])})
		return nil
	})
}

// Pair is two documents, and whether they belong together.
type Pair struct {
	Match bool
	ID    [2]string
	Text  [2][]byte
}

// ReadPairs reads a pair from each line, as the files new_aan_pairs of the Long
// Range Arena hold them: label, two ids, two texts, with a tab between them.
func ReadPairs(r io.Reader) ([]Pair, error) {
	var list []Pair
	return list, lines(r, func(_ int, line []byte) error {
		f := bytes.Split(line, []byte("\t"))
		if len(f) != 5 {
			return fmt.Errorf("it has %d fields, 5 are needed", len(f))
		}
		label, err := strconv.ParseFloat(string(f[0]), 64)
		if err != nil || label != 0 && label != 1 {
			return fmt.Errorf("label: it is %.20q, 0 or 1 is needed", f[0])
		}
		list = append(list, Pair{label == 1, [2]string{string(f[1]), string(f[2])}, [2][]byte{bytes.Clone(f[3]), bytes.Clone(f[4])}})
		return nil
	})
}
