package dataset

import "math"

// Resampling is a filter for changing the size of a picture. The numbers are those of Pillow.
type Resampling int

// The filters of Pillow.
const (
	NearestSampling Resampling = iota
	LanczosSampling
	BilinearSampling
	BicubicSampling
	BoxSampling
	HammingSampling
)

// sampler is the kernel of a resampling, 0 beyond ±reach.
type sampler struct {
	reach  float64
	weight func(x float64) float64 // of a distance, 0 ≤ x but for the box
}

// samplers are the kernels of all ways but the nearest pixel. Products and sums are rounded
// one by one.
var samplers = map[Resampling]sampler{
	BoxSampling: {0.5, func(x float64) float64 {
		if x > -0.5 && x <= 0.5 {
			return 1
		}
		return 0
	}},
	BilinearSampling: {1, func(x float64) float64 { return max(0, 1-math.Abs(x)) }},
	HammingSampling: {1, func(x float64) float64 {
		x = math.Abs(x)
		if x >= 1 {
			return 0
		}
		return sinc(x) * (0.54 + float64(0.46*math.Cos(math.Pi*x)))
	}},
	BicubicSampling: {2, func(x float64) float64 { // Keys 1981, a = −1/2
		const a = -0.5
		switch x = math.Abs(x); {
		case x < 1:
			return float64(float64((float64((a+2)*x)-(a+3))*x)*x) + 1
		case x < 2:
			return (float64((float64((x-5)*x)+8)*x) - 4) * a
		}
		return 0
	}},
	LanczosSampling: {3, func(x float64) float64 {
		if x < -3 || x >= 3 {
			return 0
		}
		return sinc(x) * sinc(x/3)
	}},
}

// sinc returns sin(πx)/πx.
func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// weightBits are the bits of a weight after the point.
const weightBits = 22

// taps are the pixels of an axis that one output reads, and their weights.
type taps struct {
	first   int
	weights []int // times 2^weightBits
}

// axisTaps returns the taps of each of size outputs along an axis of n pixels. The kernel is
// stretched where pixels become fewer.
func (s sampler) axisTaps(n, size int) []taps {
	list := make([]taps, size)
	scale := float64(n) / float64(size)
	stretch := max(scale, 1)
	reach := float64(s.reach * stretch)
	var weights []float64
	for i := range list {
		center := float64((float64(i) + 0.5) * scale)
		first, last := max(int(center-reach+0.5), 0), min(int(center+reach+0.5), n)
		weights = weights[:0]
		sum := 0.
		for at := first; at < last; at++ {
			w := s.weight((float64(at) - center + 0.5) * (1 / stretch))
			weights = append(weights, w)
			sum += w
		}
		list[i] = taps{first, make([]int, len(weights))}
		for k, w := range weights {
			if sum != 0 {
				w /= sum
			}
			list[i].weights[k] = int(math.Copysign(0.5, w) + float64(w*(1<<weightBits)))
		}
	}
	return list
}

// Resize returns p in another size. It rounds to bytes after rows and after columns. If columns
// lose more than twice as many pixels as rows, they are resized first, which experiments show to be
// the order of Pillow 13.
func (r Resampling) Resize(p *Picture, height, width int) *Picture {
	if r == NearestSampling {
		return resizeNearest(p, height, width)
	}
	s := samplers[r]
	if lost := p.Height - height; lost > 0 && lost > 2*(p.Width-width) {
		p = s.resizeColumns(p, height)
	}
	if p.Width != width {
		p = s.resizeRows(p, width)
	}
	if p.Height != height {
		p = s.resizeColumns(p, height)
	}
	return p
}

// resizeRows returns p with another width.
func (s sampler) resizeRows(p *Picture, width int) *Picture {
	q := &Picture{Height: p.Height, Width: width, Pixels: make([]byte, 0, 3*p.Height*width)}
	list := s.axisTaps(p.Width, width)
	for y := range p.Height {
		row := p.Pixels[3*y*p.Width:][:3*p.Width]
		for _, t := range list {
			red, green, blue := 1<<(weightBits-1), 1<<(weightBits-1), 1<<(weightBits-1)
			from := row[3*t.first:]
			for k, w := range t.weights {
				red += w * int(from[3*k])
				green += w * int(from[3*k+1])
				blue += w * int(from[3*k+2])
			}
			q.Pixels = append(q.Pixels, clipLevel(red), clipLevel(green), clipLevel(blue))
		}
	}
	return q
}

// resizeColumns returns p with another height.
func (s sampler) resizeColumns(p *Picture, height int) *Picture {
	q := &Picture{Height: height, Width: p.Width, Pixels: make([]byte, 0, 3*height*p.Width)}
	sums := make([]int, 3*p.Width)
	for _, t := range s.axisTaps(p.Height, height) {
		for i := range sums {
			sums[i] = 1 << (weightBits - 1)
		}
		for k, w := range t.weights {
			for i, x := range p.Pixels[(t.first+k)*len(sums):][:len(sums)] {
				sums[i] += w * int(x)
			}
		}
		for _, x := range sums {
			q.Pixels = append(q.Pixels, clipLevel(x))
		}
	}
	return q
}

// clipLevel returns the level of a weighted sum.
func clipLevel(x int) byte { return byte(min(max(x>>weightBits, 0), 255)) }

// resizeNearest returns the pixels under the centres of the new pixels.
func resizeNearest(p *Picture, height, width int) *Picture {
	rows, columns := nearestPixels(p.Height, height), nearestPixels(p.Width, width)
	q := &Picture{Height: height, Width: width, Pixels: make([]byte, 0, 3*height*width)}
	for _, y := range rows {
		for _, x := range columns {
			q.Pixels = append(q.Pixels, p.Pixels[3*(y*p.Width+x):][:3]...)
		}
	}
	return q
}

// nearestPixels returns the pixel of an axis of n under the centre of each of size pixels.
func nearestPixels(n, size int) []int {
	list := make([]int, size)
	step := float64(n) / float64(size)
	at := step * 0.5
	for i := range list {
		list[i] = min(int(at), n-1)
		at += step
	}
	return list
}
