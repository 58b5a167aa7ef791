package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/infile"
)

// Record is one sequence of a FASTA file.
type Record struct {
	Name        string // first word of the header, up to a space or tab
	Description string // rest of the header
	Bases       []byte // letters, '-' and '*', unchanged
}

// ReadFASTA reads the records of a FASTA file. It returns an error if there is no record, or if a
// sequence precedes the first header or contains other characters.
func ReadFASTA(r io.Reader) ([]Record, error) {
	var list []Record
	err := eachLine(infile.NewTable(r), func(_ int, line []byte) error {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] == '>' {
			header := bytes.TrimLeft(line[1:], " \t")
			end := bytes.IndexAny(header, " \t")
			if end < 0 {
				end = len(header)
			}
			list = append(list, Record{Name: string(header[:end]), Description: string(header[min(end+1, len(header)):])})
			return nil
		}
		for _, c := range line {
			if c|0x20 < 'a' || c|0x20 > 'z' {
				if c != '-' && c != '*' {
					return fmt.Errorf("sequence: byte 0x%02x is no letter", c)
				}
			}
		}
		if len(line) > 0 {
			if len(list) == 0 {
				return errors.New("sequence: no header with > before it")
			}
			last := &list[len(list)-1]
			last.Bases = append(last.Bases, line...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("records: there is none")
	}
	return list, nil
}
