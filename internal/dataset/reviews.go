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
	Name     string // as number_rating
	Film     string // IMDB's title id
	Text     []byte
}

// ReadReviews reads one review from each line: 0 or 1, name, film and text, separated by tabs. The
// text may contain tabs. It returns an error if a line is malformed.
func ReadReviews(r io.Reader) ([]Review, error) {
	var list []Review
	err := eachLine(r, func(_ int, line []byte) error {
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

// Pair is two documents; Match reports whether they belong together.
type Pair struct {
	Match bool
	ID    [2]string
	Text  [2][]byte
}

// ReadPairs returns a reader of the files new_aan_pairs of the Long Range Arena. Each line has a
// label, two ids and two texts, separated by tabs. The reader keeps the first most bytes of each
// text. It returns an error if a line is malformed.
func ReadPairs(most int) func(io.Reader) ([]Pair, error) {
	return func(r io.Reader) ([]Pair, error) {
		var list []Pair
		err := eachLine(r, func(_ int, line []byte) error {
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

// reviewBytes bounds a review that is a file.
const reviewBytes = 1 << 20

// ReadReviewFolder reads one part of the archive aclImdb, train or test: the files
// number_rating.txt in its folders pos and neg. The line of urls_pos.txt or urls_neg.txt with the
// same number names the film. Reviews are ordered by number, positive ones first. It returns an
// error if a file is missing, empty or too long, or if a film is missing.
func ReadReviewFolder(dir string) ([]Review, error) {
	type numbered struct {
		number int
		Review
	}
	var list []numbered
	for _, class := range []string{"pos", "neg"} {
		films, err := ReadFile(filepath.Join(dir, "urls_"+class+".txt"), readFilms)
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
			text, err := ReadFile(path, func(r io.Reader) ([]byte, error) {
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

// readFilms reads the title id in the URL of each line.
func readFilms(r io.Reader) ([]string, error) {
	var films []string
	err := eachLine(r, func(_ int, line []byte) error {
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
