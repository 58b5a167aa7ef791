package grammar

import "strconv"

// space is the blanks between two parts of a value: none, a space, or a line break and few blanks.
func (b *builder) space() part {
	return b.rule("space", func() part {
		return b.either(b.empty(), b.text(" "), b.join(b.text("\n"), b.repeat(func() part { return b.bytes("  \t\t") }, 0, 20)))
	})
}

// char is a character of a string.
func (b *builder) char() part {
	return b.rule("char", func() part {
		tail := func() part { return b.bytes("\x80\xbf") }
		hex := func() part { return b.bytes("09afAF") }
		return b.either(
			b.bytes(" !#[]\x7f"),
			b.join(b.bytes("\xc2\xdf"), tail()),
			b.join(b.bytes("\xe0\xe0"), b.bytes("\xa0\xbf"), tail()),
			b.join(b.bytes("\xe1\xec\xee\xef"), tail(), tail()),
			b.join(b.bytes("\xed\xed"), b.bytes("\x80\x9f"), tail()),
			b.join(b.bytes("\xf0\xf0"), b.bytes("\x90\xbf"), tail(), tail()),
			b.join(b.bytes("\xf1\xf3"), tail(), tail(), tail()),
			b.join(b.bytes("\xf4\xf4"), b.bytes("\x80\x8f"), tail(), tail()),
			b.join(b.text(`\`), b.bytes(`""\\//bbffnnrrtt`)),
			b.join(b.text(`\u`), b.either(
				b.join(b.bytes("09acefACEF"), hex(), hex(), hex()),
				b.join(b.bytes("dDdd"), b.bytes("07"), hex(), hex()))),
		)
	})
}

// str is a string of least to most characters; most < 0: any number.
func (b *builder) str(least, most int) part {
	return b.join(b.text(`"`), b.repeat(b.char, least, most), b.text(`"`))
}

// anyString is a string of any length.
func (b *builder) anyString() part {
	return b.rule("string", func() part { return b.str(0, -1) })
}

// digits is least to most digits.
func (b *builder) digits(least, most int) part {
	return b.repeat(func() part { return b.bytes("09") }, least, most)
}

// Digits of a number: a model that draws digits alone comes to an end.
const (
	integerDigits  = 16
	fractionDigits = 16
	exponentDigits = 2
)

// natural is an integer of 0 or more.
func (b *builder) natural() part {
	return b.either(b.text("0"), b.join(b.bytes("19"), b.digits(0, integerDigits-1)))
}

// integer is an integer, number a number; a minus sign is possible with signed.
func (b *builder) integer(signed bool) part {
	if !signed {
		return b.natural()
	}
	return b.rule("integer", func() part { return b.join(b.maybe(b.text("-")), b.natural()) })
}

func (b *builder) number(signed bool) part {
	rest := func() part {
		return b.join(b.maybe(b.join(b.text("."), b.digits(1, fractionDigits))),
			b.maybe(b.join(b.bytes("eeEE"), b.maybe(b.bytes("++--")), b.digits(1, exponentDigits))))
	}
	if !signed {
		return b.join(b.natural(), rest())
	}
	return b.rule("number", func() part { return b.join(b.integer(true), rest()) })
}

// between is an integer of low to high.
func (b *builder) between(low, high int64) part {
	var list []part
	if low < 0 {
		from := uint64(1)
		if high < 0 {
			from = uint64(-high)
		}
		list = append(list, b.join(b.text("-"), b.naturals(from, -uint64(low))))
	}
	if low <= 0 && high >= 0 {
		list = append(list, b.text("0"))
	}
	if high > 0 {
		list = append(list, b.naturals(uint64(max(low, 1)), uint64(high)))
	}
	return b.either(list...)
}

// naturals is an integer of low to high, which are 1 or more.
func (b *builder) naturals(low, high uint64) part {
	var list []part
	for n, least := len(strconv.FormatUint(low, 10)), low; ; n++ {
		most := ""
		for range n {
			most += "9"
		}
		last := strconv.FormatUint(high, 10)
		if len(last) > n {
			last = most
		}
		list = append(list, b.sameLength(strconv.FormatUint(least, 10), last))
		if last != most || len(strconv.FormatUint(high, 10)) == n {
			return b.either(list...)
		}
		least = 1
		for range n {
			least *= 10
		}
	}
}

// sameLength is a number of low to high, which have as many digits.
func (b *builder) sameLength(low, high string) part {
	if low == "" {
		return b.empty()
	}
	zeros, nines := true, true
	for i := range len(low) {
		zeros, nines = zeros && low[i] == '0', nines && high[i] == '9'
	}
	n := len(low) - 1
	fill := func(c byte) string {
		s := make([]byte, n)
		for i := range s {
			s[i] = c
		}
		return string(s)
	}
	switch {
	case zeros && nines:
		return b.digits(n+1, n+1)
	case low[0] == high[0]:
		return b.join(b.text(low[:1]), b.sameLength(low[1:], high[1:]))
	}
	list := []part{
		b.join(b.text(low[:1]), b.sameLength(low[1:], fill('9'))),
		b.join(b.text(high[:1]), b.sameLength(fill('0'), high[1:])),
	}
	if low[0]+1 < high[0] {
		list = append(list, b.join(b.bytes(string([]byte{low[0] + 1, high[0] - 1})), b.digits(n, n)))
	}
	return b.either(list...)
}

// anyValue is any value.
func (b *builder) anyValue() part {
	return b.rule("value", func() part {
		return b.either(b.anyString(), b.number(true), b.text("true"), b.text("false"), b.text("null"),
			b.anyObject(), b.array(b.anyValue, 0, -1))
	})
}

// anyObject is any object.
func (b *builder) anyObject() part {
	return b.rule("object", func() part { return b.dictionary(b.anyValue, 0, -1) })
}

// dictionary is an object of least to most entries with any names. value makes their values anew.
func (b *builder) dictionary(value func() part, least, most int) part {
	return b.list("{", "}", least, most, func() part { return b.join(b.anyString(), b.text(":"), b.space(), value()) })
}

// array is an array of least to most values.
func (b *builder) array(value func() part, least, most int) part {
	return b.list("[", "]", least, most, value)
}

// list is least to most elements between brackets; most < 0: any number.
func (b *builder) list(open, end string, least, most int, element func() part) part {
	next := func() part { return b.join(b.text(","), b.space(), element()) }
	empty := b.join(b.text(open), b.space(), b.text(end))
	if most == 0 {
		return empty
	}
	filled := func() part {
		rest := -1
		if most > 0 {
			rest = most - 1
		}
		return b.join(b.text(open), b.space(), element(), b.repeat(next, max(least-1, 0), rest), b.space(), b.text(end))
	}
	if least > 0 {
		return filled()
	}
	return b.either(empty, filled())
}
