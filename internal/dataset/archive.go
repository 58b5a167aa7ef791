package dataset

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// archiveReviews bounds the reviews of an archive, archiveBytes their total size.
const (
	archiveReviews = 1 << 20
	archiveBytes   = 1 << 30
)

// ReadReviewArchive reads the tar aclImdb of IMDB's reviews. It returns the labelled reviews of
// train and of test, each in the order of ReadReviewFolder, and reads r to its end. It returns an
// error if the tar is malformed, a review has no film, a limit is exceeded, a part is empty, or r
// fails.
func ReadReviewArchive(r io.Reader) (parts [2][]Review, err error) {
	type numbered struct {
		part, number int
		Review
	}
	var list []numbered
	films := map[string][]string{} // by part and class
	total := 0
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			if _, err := io.Copy(io.Discard, r); err != nil { // the end of gzip has a checksum
				return parts, fmt.Errorf("end: %w", err)
			}
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return parts, err
		}
		f := strings.Split(path.Clean(h.Name), "/")
		if h.Typeflag != tar.TypeReg || len(f) < 3 || f[0] != "aclImdb" {
			continue
		}
		part := slices.Index([]string{"train", "test"}, f[1])
		if part < 0 {
			continue
		}
		if class, ok := strings.CutPrefix(f[2], "urls_"); ok && len(f) == 3 && (class == "pos.txt" || class == "neg.txt") {
			names, err := readFilms(t)
			if err != nil {
				return parts, fmt.Errorf("%s: %w", h.Name, err)
			}
			films[f[1]+"/"+strings.TrimSuffix(class, ".txt")] = names
			continue
		}
		if len(f) != 4 || f[2] != "pos" && f[2] != "neg" {
			continue
		}
		name, ok := strings.CutSuffix(f[3], ".txt")
		first, _, _ := strings.Cut(name, "_")
		number, err := strconv.Atoi(first)
		if !ok || err != nil || number < 0 {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(t, reviewBytes+1))
		if err != nil {
			return parts, fmt.Errorf("%s: %w", h.Name, err)
		}
		if len(text) == 0 || len(text) > reviewBytes {
			return parts, fmt.Errorf("%s: it has %d bytes, 1 to %d are read", h.Name, h.Size, reviewBytes)
		}
		if total += len(text); total > archiveBytes || len(list) == archiveReviews {
			return parts, fmt.Errorf("%s: there are more than %d reviews or %d bytes", h.Name, archiveReviews, archiveBytes)
		}
		list = append(list, numbered{part, number, Review{f[2] == "pos", name, f[1] + "/" + f[2], text}})
	}
	for i := range list {
		v := &list[i]
		names := films[v.Film]
		if v.number >= len(names) {
			return parts, fmt.Errorf("%s/%s: its number is %d, there are %d films", v.Film, v.Name, v.number, len(names))
		}
		v.Film = names[v.number]
	}
	slices.SortStableFunc(list, func(a, b numbered) int {
		if a.number != b.number {
			return a.number - b.number
		}
		return strings.Compare(fmt.Sprint(b.Positive), fmt.Sprint(a.Positive)) // true first
	})
	for _, v := range list {
		parts[v.part] = append(parts[v.part], v.Review)
	}
	if len(parts[0]) == 0 || len(parts[1]) == 0 {
		return parts, fmt.Errorf("reviews: %d to learn from and %d to be judged by", len(parts[0]), len(parts[1]))
	}
	return parts, nil
}

// WriteReviews writes reviews in the format that ReadReviews reads. It returns an error if a review
// has no text or holds a line break, or if w fails.
func WriteReviews(w io.Writer, list []Review) error {
	b := bufio.NewWriter(w)
	for i, v := range list {
		if strings.ContainsAny(string(v.Text), "\n\r") || strings.ContainsAny(v.Name+v.Film, "\t\n\r") {
			return fmt.Errorf("review %d: %s holds a line break", i, v.Name)
		}
		if len(v.Text) == 0 {
			return fmt.Errorf("review %d: %s has no text", i, v.Name)
		}
		label := 0
		if v.Positive {
			label = 1
		}
		fmt.Fprintf(b, "%d\t%s\t%s\t%s\n", label, v.Name, v.Film, v.Text)
	}
	return b.Flush()
}
