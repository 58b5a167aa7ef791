//go:build linux

package attacks

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"regexp"
)

var digits = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)?`)

// Numbers that take the place of others in texts.
var hostileNumbers = []string{
	"-1", "0", "1", "2147483647", "2147483648", "4294967296", "4611686018427387904", "9223372036854775807", "9223372036854775808",
	"18446744073709551615", "99999999999999999999999", "1e9", "1e309", "-1e-400", "NaN", "Infinity", "0.5", "null", "[]", `"1"`, "true",
}

// hostileTexts returns replacements for a text: a path out of the folder, escapes of a
// terminal, a forged line. The path belongs to this try alone, so that a file there
// identifies its writer.
func hostileTexts(path string) []string {
	return []string{path, "../../../../../../../.." + path, "\x1b[2J\x1b[31m", "\nfarfield: done\n", "\x00", "\xff\xfe\xfd", "{", `"`, "[[[[[[[[[[[[[[[[[[[[[[[["}
}

// mutateBytes returns a damaged copy of data. escape is a path that nothing may write.
func mutateBytes(r *rand.Rand, data []byte, escape string) []byte {
	b := bytes.Clone(data)
	for range 1 + r.IntN(3) {
		b = mutateOnce(r, b, escape)
	}
	return b
}

func mutateOnce(r *rand.Rand, b []byte, escape string) []byte {
	if len(b) == 0 {
		return []byte{byte(r.Uint32())}
	}
	// Headers are short and matter most: half of the places are in the first 256 bytes.
	place := func() int {
		if r.IntN(2) == 0 {
			return r.IntN(min(len(b), 256))
		}
		return r.IntN(len(b))
	}
	i := place()
	n := min(1+r.IntN(1<<r.IntN(12)), len(b)-i) // of a block
	splice := func(i, n int, with []byte) []byte {
		return append(append(bytes.Clone(b[:i]), with...), b[i+n:]...)
	}
	switch r.IntN(12) {
	case 0, 1: // a bit
		b[i] ^= 1 << r.IntN(8)
		return b
	case 2: // a byte
		b[i] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(r.Uint32())}[r.IntN(6)]
		return b
	case 3: // the end is missing
		return b[:i]
	case 4: // random bytes are inserted
		with := make([]byte, n)
		for j := range with {
			with[j] = byte(r.Uint32())
		}
		return splice(i, 0, with)
	case 5: // a block is there twice
		return splice(i, 0, bytes.Clone(b[i:i+n]))
	case 6: // a block is missing
		return splice(i, n, nil)
	case 7: // a block of zeros or ones
		fill := byte(-r.IntN(2))
		for j := range n {
			b[i+j] = fill
		}
		return b
	case 8: // a length
		value := []uint64{0, 1, 1 << 16, 1<<31 - 1, 1 << 31, 1 << 32, 1 << 40, 1<<62 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1, uint64(len(b)), r.Uint64()}[r.IntN(13)]
		var word [8]byte
		if r.IntN(4) == 0 {
			binary.BigEndian.PutUint64(word[:], value)
		} else {
			binary.LittleEndian.PutUint64(word[:], value)
		}
		copy(b[i:], word[:[]int{1, 2, 4, 8}[r.IntN(4)]])
		return b
	case 9, 10: // a number of a text
		list := digits.FindAllIndex(b[:min(len(b), 1<<16)], -1)
		if len(list) == 0 {
			b[i] ^= 0x10
			return b
		}
		at := list[r.IntN(len(list))]
		return splice(at[0], at[1]-at[0], []byte(hostileNumbers[r.IntN(len(hostileNumbers))]))
	default:
		texts := hostileTexts(escape)
		return splice(i, min(n, 16), []byte(texts[r.IntN(len(texts))]))
	}
}

// A seal gives a damaged file the checksums that it ought to have, so that what is
// behind them is reached. It returns the file as it is where that is impossible.
type seal func(b []byte) []byte

// sealCRC32C replaces the last four bytes.
func sealCRC32C(b []byte) []byte {
	if len(b) < 4 {
		return b
	}
	end := len(b) - 4
	return binary.LittleEndian.AppendUint32(bytes.Clone(b[:end]), crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)))
}

// sealSHA256 replaces the last 32 bytes.
func sealSHA256(b []byte) []byte {
	if len(b) < sha256.Size {
		return b
	}
	end := len(b) - sha256.Size
	sum := sha256.Sum256(b[:end])
	return append(bytes.Clone(b[:end]), sum[:]...)
}

// containerMutation changes the content of a container and packs it anew.
type containerMutation func(b []byte, change func([]byte) []byte, pick func(n int) int) []byte

// insideZip damages a member of a zip archive.
func insideZip(b []byte, change func([]byte) []byte, pick func(n int) int) []byte {
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil || len(r.File) == 0 {
		return b
	}
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	which, name := pick(len(r.File)), pick(8) == 0
	for i, f := range r.File {
		m, err := f.Open()
		if err != nil {
			return b
		}
		text, err := io.ReadAll(m)
		if err != nil {
			return b
		}
		head := zip.FileHeader{Name: f.Name, Method: f.Method}
		switch {
		case i == which && name:
			head.Name = string(change([]byte(f.Name)))
		case i == which:
			text = change(text)
		}
		member, err := w.CreateHeader(&head)
		if err != nil {
			return b
		}
		if _, err := member.Write(text); err != nil {
			return b
		}
	}
	if w.Close() != nil {
		return b
	}
	return out.Bytes()
}

// insideGzip damages what gzip holds.
func insideGzip(b []byte, change func([]byte) []byte, _ func(n int) int) []byte {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return b
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return b
	}
	return compressGzip(change(text))
}

// insideTar damages a member, or a name, of a tar archive in gzip.
func insideTar(b []byte, change func([]byte) []byte, pick func(n int) int) []byte {
	return insideGzip(b, func(text []byte) []byte {
		var out bytes.Buffer
		r, w := tar.NewReader(bytes.NewReader(text)), tar.NewWriter(&out)
		which, what := pick(3), pick(4)
		for i := 0; ; i++ {
			h, err := r.Next()
			if err != nil {
				break
			}
			data, err := io.ReadAll(r)
			if err != nil {
				return text
			}
			if i == which {
				switch what {
				case 0:
					h.Name = string(change([]byte(h.Name)))
				case 1:
					h.Typeflag, h.Linkname, h.Size, data = tar.TypeSymlink, string(change([]byte(h.Name))), 0, nil
				default:
					data = change(data)
					h.Size = int64(len(data))
				}
			}
			if w.WriteHeader(h) != nil {
				return change(text)
			}
			if _, err := w.Write(data); err != nil {
				return text
			}
		}
		if w.Close() != nil {
			return text
		}
		return out.Bytes()
	}, pick)
}

func compressGzip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}
