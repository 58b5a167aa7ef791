package array

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/infile"
)

// The .npy format (NEP 1, numpy.lib.format) has magic, version, length of the header, header and
// data. The header is a Python dictionary.
const (
	npyMagic  = "\x93NUMPY"
	npyAlign  = 64
	maxHeader = 1<<16 - 1 // maximum of version 1.0
)

// ReadNPY reads one array without name in .npy format, version 1.0, 2.0 or 3.0. It reads no byte
// after the array. Big-endian numbers and Fortran order are rewritten. It returns an error for types
// unknown to this package, pickled objects, and malformed or truncated files.
func ReadNPY(r io.Reader) (*Array, error) {
	t, shape, order, err := readNPYHeader(r)
	if err != nil {
		return nil, err
	}
	if r, err = order.rewrite(r, t, shape); err != nil {
		return nil, err
	}
	return Decode(r, t, shape)
}

// readNPYHeader reads everything before the data and returns type, shape and order.
func readNPYHeader(r io.Reader) (t DType, shape []int, order layout, err error) {
	var start [len(npyMagic) + 2]byte
	if err := readFull(r, start[:]); err != nil {
		return 0, nil, order, err
	}
	if string(start[:len(npyMagic)]) != npyMagic {
		return 0, nil, order, fmt.Errorf("not in .npy format: it begins with %q", start[:len(npyMagic)])
	}
	var size int
	switch major, minor := start[len(npyMagic)], start[len(npyMagic)+1]; {
	case major == 1 && minor == 0:
		var b [2]byte
		if err := readFull(r, b[:]); err != nil {
			return 0, nil, order, err
		}
		size = int(binary.LittleEndian.Uint16(b[:]))
	case (major == 2 || major == 3) && minor == 0:
		var b [4]byte
		if err := readFull(r, b[:]); err != nil {
			return 0, nil, order, err
		}
		n := binary.LittleEndian.Uint32(b[:])
		if n > maxHeader {
			return 0, nil, order, fmt.Errorf("header has %d bytes, at most %d are read", n, maxHeader)
		}
		size = int(n)
	default:
		return 0, nil, order, fmt.Errorf(".npy version is %d.%d; 1.0, 2.0 or 3.0 is needed", major, minor)
	}
	text := make([]byte, size)
	if err := readFull(r, text); err != nil {
		return 0, nil, order, err
	}
	return parseNPYHeader(string(text))
}

// readFull is io.ReadFull with an error for a truncated header.
func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("truncated in the .npy header")
	}
	return err
}

// parseNPYHeader parses a dictionary with exactly the keys descr, fortran_order and shape.
func parseNPYHeader(text string) (t DType, shape []int, order layout, err error) {
	bad := func() (DType, []int, layout, error) {
		return 0, nil, layout{}, fmt.Errorf("header is not a dictionary of descr, fortran_order and shape: %.100q", text)
	}
	var (
		descr string
		seen  = make(map[string]bool)
		s     = literalReader{text}
	)
	if !s.skipToken("{") {
		return bad()
	}
	for !s.skipToken("}") {
		key, ok := s.readString()
		if !ok || seen[key] || !s.skipToken(":") {
			return bad()
		}
		seen[key] = true
		switch key {
		case "descr":
			if s.skipToken("[") || s.skipToken("(") {
				return 0, nil, order, fmt.Errorf("dtype is structured; %s is needed", readableTypes)
			}
			descr, ok = s.readString()
		case "fortran_order":
			order.isFortran = s.skipToken("True")
			ok = order.isFortran || s.skipToken("False")
		case "shape":
			shape, ok = s.readInts()
		default:
			ok = false
		}
		if !ok {
			return bad()
		}
		if !s.skipToken(",") && !s.hasNext("}") {
			return bad()
		}
	}
	if len(seen) != 3 || strings.TrimSpace(s.rest) != "" {
		return bad()
	}
	if t, order.isBig, err = parseDescr(descr); err != nil {
		return 0, nil, order, err
	}
	order.isFortran = order.isFortran && len(shape) > 1
	return t, shape, order, nil
}

const readableTypes = "f2, f4, f8, i4, i8, u1 or bool"

// parseDescr parses numpy's name of a type: byte order, kind, size in bytes.
// isBig says that the most significant byte comes first.
func parseDescr(descr string) (t DType, isBig bool, err error) {
	if len(descr) < 2 {
		return 0, false, fmt.Errorf("dtype is %q; %s is needed", descr, readableTypes)
	}
	switch descr[1:] {
	case "f4":
		t = F4
	case "f8":
		t = F8
	case "i4":
		t = I4
	case "i8":
		t = I8
	case "u1":
		t = U1
	case "b1":
		t = Bool
	case "f2":
		t = F2
	default:
		what := "is not read"
		switch descr[1] {
		case 'O':
			what = "is pickled Python objects"
		case 'c':
			what = "is complex"
		case 'S', 'U':
			what = "is text"
		case 'V':
			what = "is structured"
		}
		return 0, false, fmt.Errorf("dtype %s %s; %s is needed", infile.Shorten(descr), what, readableTypes)
	}
	switch order := descr[0]; {
	case order == '<', t.Size() == 1 && (order == '|' || order == '>'):
		return t, false, nil
	case order == '>':
		return t, true, nil
	}
	return 0, false, fmt.Errorf("dtype is %q; %s is needed", descr, readableTypes)
}

// literalReader parses the Python literals of a header from the front of rest.
type literalReader struct{ rest string }

// hasNext skips blanks and reports whether token comes next.
func (s *literalReader) hasNext(token string) bool {
	s.rest = strings.TrimLeft(s.rest, " \t\r\n")
	return strings.HasPrefix(s.rest, token)
}

// skipToken skips token if it comes next, and reports whether it did.
func (s *literalReader) skipToken(token string) bool {
	if !s.hasNext(token) {
		return false
	}
	s.rest = s.rest[len(token):]
	return true
}

// readString reads a string in single or double quotes.
func (s *literalReader) readString() (string, bool) {
	for _, quote := range []string{"'", `"`} {
		if s.skipToken(quote) {
			text, rest, ok := strings.Cut(s.rest, quote)
			s.rest = rest
			return text, ok
		}
	}
	return "", false
}

// readInts reads a tuple of non-negative integers.
func (s *literalReader) readInts() ([]int, bool) {
	if !s.skipToken("(") {
		return nil, false
	}
	list := []int{}
	for !s.skipToken(")") {
		s.hasNext("")
		digits := s.rest[:len(s.rest)-len(strings.TrimLeft(s.rest, "0123456789"))]
		d, err := strconv.Atoi(digits)
		if err != nil {
			return nil, false
		}
		s.rest = s.rest[len(digits):]
		list = append(list, d)
		if !s.skipToken(",") && !s.hasNext(")") {
			return nil, false
		}
	}
	return list, true
}

// WriteNPY writes a in .npy format, version 1.0. The data begins at a multiple of 64 bytes, as in
// numpy's files. It returns an error if the shape does not match the data or w fails.
func WriteNPY(w io.Writer, a *Array) error {
	if err := a.checkShape(); err != nil {
		return a.errorf("%w", err)
	}
	if _, err := w.Write(NPYHeader(a.DType, a.Shape)); err != nil {
		return err
	}
	return a.Encode(w)
}

// NPYHeader returns the bytes before the elements of an array [shape...]. The type must be one that
// is written, and shape must have at most 64 dimensions, which fit a header of version 1.0.
func NPYHeader(t DType, shape []int) []byte {
	descr := "<" + t.String()
	switch t {
	case U1:
		descr = "|u1"
	case Bool:
		descr = "|b1"
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, formatShape(shape))
	before := len(npyMagic) + 4
	pad := -(before + len(text) + 1) & (npyAlign - 1)
	text += strings.Repeat(" ", pad) + "\n"

	b := append([]byte(npyMagic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}
