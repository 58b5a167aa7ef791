package tensorboard

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"
)

// record splits the first record off a file and verifies its checksums.
func record(t *testing.T, file []byte) (event, rest []byte) {
	t.Helper()
	if len(file) < 16 {
		t.Fatalf("%d bytes are no record", len(file))
	}
	n := binary.LittleEndian.Uint64(file)
	if got, want := binary.LittleEndian.Uint32(file[8:]), maskedChecksum(file[:8]); got != want {
		t.Fatalf("the length's checksum is %x, want %x", got, want)
	}
	event, rest = file[12:][:n], file[12+n:]
	if got, want := binary.LittleEndian.Uint32(rest), maskedChecksum(event); got != want {
		t.Fatalf("the event's checksum is %x, want %x", got, want)
	}
	return event, rest[4:]
}

// field is a field of a protocol buffer.
type field struct {
	number byte
	bits   uint64 // of a number
	bytes  []byte
}

func fields(t *testing.T, message []byte) (list []field) {
	t.Helper()
	for len(message) > 0 {
		f := field{number: message[0] >> 3}
		kind := message[0] & 7
		message = message[1:]
		switch kind {
		case fixed64:
			f.bits, message = binary.LittleEndian.Uint64(message), message[8:]
		case fixed32:
			f.bits, message = uint64(binary.LittleEndian.Uint32(message)), message[4:]
		case varint, counted:
			x, n := binary.Uvarint(message)
			f.bits, message = x, message[n:]
			if kind == counted {
				f.bytes, message = message[:x], message[x:]
			}
		default:
			t.Fatalf("field %d has type %d", f.number, kind)
		}
		list = append(list, f)
	}
	return list
}

func TestEventsAreRead(t *testing.T) {
	file := AppendHeader(nil, 12.5)
	file = AppendScalars(file, 13.25, 300, Scalar{"loss", 0.75}, Scalar{"rate", 1e-3})
	file = AppendScalars(file, 14, 0)

	event, rest := record(t, file)
	head := fields(t, event)
	if len(head) != 2 || math.Float64frombits(head[0].bits) != 12.5 || head[1].number != 3 || string(head[1].bytes) != "brain.Event:2" {
		t.Errorf("the header is %+v", head)
	}
	event, rest = record(t, rest)
	step := fields(t, event)
	if len(step) != 3 || math.Float64frombits(step[0].bits) != 13.25 || step[1].number != 2 || step[1].bits != 300 || step[2].number != 5 {
		t.Fatalf("the step is %+v", step)
	}
	values := fields(t, step[2].bytes)
	if len(values) != 2 {
		t.Fatalf("the summary is %+v", values)
	}
	for i, want := range []Scalar{{"loss", 0.75}, {"rate", 1e-3}} {
		v := fields(t, values[i].bytes)
		if values[i].number != 1 || len(v) != 2 || string(v[0].bytes) != want.Tag || v[1].number != 2 ||
			math.Float32frombits(uint32(v[1].bits)) != float32(want.Value) {
			t.Errorf("value %d is %+v, want %+v", i, v, want)
		}
	}
	if event, rest = record(t, rest); len(rest) != 0 || len(fields(t, event)) != 3 {
		t.Errorf("%d bytes follow the last event %x", len(rest), event)
	}
}

func TestChecksumIsMaskedCRC(t *testing.T) {
	const known = 0xe3069283 // CRC-32C of "123456789"
	turned := uint32(known)>>15 | uint32(known&0x7fff)<<17
	if got, want := maskedChecksum([]byte("123456789")), turned+0xa282ead8; got != want {
		t.Errorf("checksum is %x, want %x", got, want)
	}
	// The bytes of a file that TensorBoard takes begin so: an event of 24 bytes.
	if got := hex.EncodeToString(AppendHeader(nil, 0)[:12]); got != "1800000000000000a37f4b22" {
		t.Errorf("the header begins %s", got)
	}
}
