package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/infile"
)

// readHeader returns the JSON header. It returns an error if the length is out of range.
func readHeader(r io.ReaderAt, size int64) ([]byte, error) {
	if size < 8 {
		return nil, fmt.Errorf("not a safetensors file: it has %d bytes, at least 8 are needed", size)
	}
	var length [8]byte
	if err := readAt(r, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, fmt.Errorf("not a safetensors file: header of %d bytes, at most %d are read", n, maxHeader)
	}
	if int64(n) > size-8 {
		return nil, fmt.Errorf("header of %d bytes is beyond the end of the file, which has %d", n, size)
	}
	header := make([]byte, n)
	if err := readAt(r, header, 8); err != nil {
		return nil, err
	}
	return header, nil
}

// readAt fills b. A full read with io.EOF is no error.
func readAt(r io.ReaderAt, b []byte, at int64) error {
	if n, err := r.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("truncated in the header: %w", err)
	}
	return nil
}

// parseHeader parses the tensors, in the order of the header, and the metadata. It reads JSON token
// by token, since json.Unmarshal accepts duplicate keys, null for any value, and keys in any case.
func parseHeader(header []byte) ([]Tensor, map[string]string, error) {
	if !utf8.Valid(header) {
		return nil, nil, errors.New("header is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(header))
	d.UseNumber()
	var (
		tensors  []Tensor
		metadata map[string]string
	)
	err := readObject(d, func(name string) (err error) {
		if name == "__metadata__" {
			if metadata, err = readTexts(d); err != nil {
				return fmt.Errorf("__metadata__: %w", err)
			}
			return nil
		}
		t, err := parseTensor(d)
		if err != nil {
			return fmt.Errorf("%s: %w", infile.Shorten(name), err)
		}
		t.Name = name
		tensors = append(tensors, t)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, errors.New("header: bytes follow the JSON object")
	}
	return tensors, metadata, nil
}

// parseTensor parses {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}.
func parseTensor(d *json.Decoder) (Tensor, error) {
	var t Tensor
	keys := 0
	err := readObject(d, func(key string) (err error) {
		switch key {
		case "dtype":
			keys++
			t.DType, err = readText(d)
		case "shape":
			keys++
			t.Shape, err = readNaturals(d)
		case "data_offsets":
			keys++
			var offsets []int
			if offsets, err = readNaturals(d); err != nil {
				break
			}
			if len(offsets) != 2 || offsets[0] > offsets[1] {
				return fmt.Errorf("data_offsets: begin and end are needed, it is %v", offsets)
			}
			t.start, t.Bytes = int64(offsets[0]), int64(offsets[1]-offsets[0])
		default:
			// The reference implementation ignores unknown keys.
			var value json.RawMessage
			err = d.Decode(&value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil && keys != 3 {
		err = errors.New("dtype, shape and data_offsets are needed")
	}
	return t, err
}

// readObject reads a JSON object. It calls member with each key, to read the value. It returns an
// error if a key appears twice.
func readObject(d *json.Decoder, member func(key string) error) error {
	if err := readDelimiter(d, '{'); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for d.More() {
		key, err := readText(d)
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%s: the key appears twice", infile.Shorten(key))
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
	return readDelimiter(d, '}')
}

// readTexts reads a JSON object of strings.
func readTexts(d *json.Decoder) (map[string]string, error) {
	m := make(map[string]string)
	err := readObject(d, func(key string) (err error) {
		if m[key], err = readText(d); err != nil {
			return fmt.Errorf("%s: %w", infile.Shorten(key), err)
		}
		return nil
	})
	return m, err
}

// readNaturals reads a JSON array of non-negative integers.
func readNaturals(d *json.Decoder) ([]int, error) {
	if err := readDelimiter(d, '['); err != nil {
		return nil, err
	}
	list := []int{}
	for d.More() {
		token, err := readToken(d)
		if err != nil {
			return nil, err
		}
		number, ok := token.(json.Number)
		if !ok {
			return nil, fmt.Errorf("an integer is needed, it is %v", token)
		}
		n, err := strconv.Atoi(number.String())
		if err != nil || n < 0 {
			return nil, fmt.Errorf("an integer from 0 to %d is needed, it is %s", math.MaxInt, number)
		}
		list = append(list, n)
	}
	return list, readDelimiter(d, ']')
}

// readText reads a JSON string.
func readText(d *json.Decoder) (string, error) {
	token, err := readToken(d)
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("a string is needed, it is %v", token)
	}
	return s, nil
}

// readDelimiter reads one delimiter. It returns an error if another token comes next.
func readDelimiter(d *json.Decoder, want json.Delim) error {
	token, err := readToken(d)
	if err != nil {
		return err
	}
	if token != want {
		return fmt.Errorf("%v is needed, it is %v", want, token)
	}
	return nil
}

// readToken returns the next token. The end of the JSON is an error.
func readToken(d *json.Decoder) (json.Token, error) {
	token, err := d.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return token, err
}
