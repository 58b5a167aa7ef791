package dataset

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	err := lines(r, func(_ int, line []byte) error {
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
	return list, err
}

// Pair is two documents, and whether they belong together.
type Pair struct {
	Match bool
	ID    [2]string
	Text  [2][]byte
}

// ReadPairs returns a reader of a pair from each line, as the files new_aan_pairs
// of the Long Range Arena hold them: label, two ids, two texts, with a tab between
// them. Of each text it keeps the first bytes, at most as many as most.
func ReadPairs(most int) func(io.Reader) ([]Pair, error) {
	return func(r io.Reader) ([]Pair, error) {
		var list []Pair
		err := lines(r, func(_ int, line []byte) error {
			f := bytes.Split(line, []byte("\t"))
			if len(f) != 5 {
				return fmt.Errorf("it has %d fields, 5 are needed", len(f))
			}
			label, err := strconv.ParseFloat(string(f[0]), 64)
			if err != nil || label != 0 && label != 1 {
				return fmt.Errorf("label: it is %.20q, 0 or 1 is needed", f[0])
			}
			p := Pair{Match: label == 1, ID: [2]string{string(f[1]), string(f[2])}}
			for k := range p.Text {
				text := f[3+k]
				if len(text) == 0 {
					return fmt.Errorf("text %d: it is empty", k+1)
				}
				p.Text[k] = bytes.Clone(text[:min(len(text), most)])
			}
			list = append(list, p)
			return nil
		})
		return list, err
	}
}

// reviewBytes is the longest review that is read from a file of its own.
const reviewBytes = 1 << 20

// ReadReviewFolder reads one part of the archive aclImdb, train or test: the
// files number_rating.txt of its folders pos and neg, and the films that its
// urls_pos.txt and urls_neg.txt name, one in the line of each number. Reviews come
// in the order of their numbers, positive first.
func ReadReviewFolder(dir string) ([]Review, error) {
	type numbered struct {
		number int
		Review
	}
	var list []numbered
	for _, class := range []string{"pos", "neg"} {
		films, err := File(filepath.Join(dir, "urls_"+class+".txt"), readFilms)
		if err != nil {
			return nil, err
		}
		folder := filepath.Join(dir, class)
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), ".txt")
			first, _, _ := strings.Cut(name, "_")
			number, err := strconv.Atoi(first)
			if !ok || err != nil {
				continue
			}
			path := filepath.Join(folder, e.Name())
			if number < 0 || number >= len(films) {
				return nil, fmt.Errorf("%s: its number is %d, urls_%s.txt has %d films", path, number, class, len(films))
			}
			text, err := File(path, func(r io.Reader) ([]byte, error) {
				return io.ReadAll(io.LimitReader(r, reviewBytes+1))
			})
			if err != nil {
				return nil, err
			}
			if len(text) == 0 || len(text) > reviewBytes {
				return nil, fmt.Errorf("%s: it has %d bytes, 1 to %d are read", path, len(text), reviewBytes)
			}
			list = append(list, numbered{number, Review{class == "pos", name, films[number], text}})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: it holds no reviews", dir)
	}
	slices.SortStableFunc(list, func(a, b numbered) int { return a.number - b.number })
	reviews := make([]Review, len(list))
	for i := range list {
		reviews[i] = list[i].Review
	}
	return reviews, nil
}

// readFilms reads the title id out of the address in each line.
func readFilms(r io.Reader) ([]string, error) {
	var films []string
	err := lines(r, func(_ int, line []byte) error {
		_, rest, ok := strings.Cut(string(line), "/title/")
		film, _, _ := strings.Cut(rest, "/")
		if !ok || film == "" {
			return fmt.Errorf("address: %.60q names no title", line)
		}
		films = append(films, film)
		return nil
	})
	return films, err
}
