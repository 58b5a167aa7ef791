package task

import (
	"bufio"
	"io"
	"strconv"
)

// WritePathfinder writes the first count[split] samples of each split as records that
// OpenPathfinder reads: the label and 1024 bytes. It calls each, which may be nil, before every
// sample with its running index. It returns the first error of the function each, of t or of w.
func WritePathfinder(w io.Writer, t *Pathfinder, count [3]int, each func(i int) error) error {
	b := bufio.NewWriter(w)
	done := 0
	for split, n := range count {
		for i := range n {
			if each != nil {
				if err := each(done); err != nil {
					return err
				}
			}
			pixels, label, err := t.readImage(Split(split), i)
			if err != nil {
				return err
			}
			b.WriteByte(byte(label))
			b.Write(pixels)
			done++
		}
	}
	return b.Flush()
}

// WriteListOps writes the first n samples of a split in the format of the Long Range Arena: TSV
// with the header Source, Target and CRLF line ends. It calls each, which may be nil, before
// every sample. It returns the first error of the function each, of t or of w.
func WriteListOps(w io.Writer, t *ListOps, split Split, n int, each func(i int) error) error {
	b := bufio.NewWriter(w)
	b.WriteString("Source\tTarget\r\n")
	var s Sample
	var line []byte
	for i := range n {
		if each != nil {
			if err := each(i); err != nil {
				return err
			}
		}
		if err := t.Sample(&s, split, i); err != nil {
			return err
		}
		line = AppendExpression(line[:0], s.Tokens)
		line = append(line, '\t')
		line = strconv.AppendInt(line, int64(s.Class), 10)
		line = append(line, "\r\n"...)
		if _, err := b.Write(line); err != nil {
			return err
		}
	}
	return b.Flush()
}
