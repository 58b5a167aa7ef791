//go:build float64

package model

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

// rebuilt is a decoder's forward pass as docs/formats.md describes it, and as nothing
// else does: plain loops in float64 over the weights by their names.
type rebuilt struct {
	c Config
	w map[string][]float64
}

// linear is y = W x + b.
func (r *rebuilt) linear(name string, x []float64) []float64 {
	w, b := r.w[name+".weight"], r.w[name+".bias"]
	y := make([]float64, len(w)/len(x))
	for i := range y {
		for j, v := range x {
			y[i] += w[i*len(x)+j] * v
		}
		if b != nil {
			y[i] += b[i]
		}
	}
	return y
}

// norm is the layer norm, or division by the root mean square, with ε = 1e-5.
func (r *rebuilt) norm(name string, x []float64) []float64 {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		if r.c.Norm != RMSNorm {
			mean += v / float64(len(x))
		}
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = (v - mean) / math.Sqrt(variance+1e-5) * r.w[name+".weight"][i]
		if b := r.w[name+".bias"]; b != nil {
			y[i] += b[i]
		}
	}
	return y
}

// conv is z_n = Σ_k w_k∘y_{n-k}.
func (r *rebuilt) conv(name string, y [][]float64) [][]float64 {
	w := r.w[name+".weight"]
	if w == nil {
		return y
	}
	width := len(y[0])
	z := make([][]float64, len(y))
	for n := range y {
		z[n] = make([]float64, width)
		for k := 0; k < len(w)/width && k <= n; k++ {
			for c := range width {
				z[n][c] += w[k*width+c] * y[n-k][c]
			}
		}
	}
	return z
}

// rotate turns channels j and j+D/2 by t·θ^(-2j/D).
func (r *rebuilt) rotate(x []float64, t int) {
	theta := r.c.RopeTheta
	if theta == 0 {
		theta = 10000
	}
	for j := range len(x) / 2 {
		sin, cos := math.Sincos(float64(t) * math.Pow(theta, -2*float64(j)/float64(len(x))))
		a, b := x[j], x[j+len(x)/2]
		x[j], x[j+len(x)/2] = a*cos-b*sin, a*sin+b*cos
	}
}

// standard gives x mean 0 and variance 1.
func standard(x []float64) {
	mean, square := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for i := range x {
		x[i] -= mean
		square += x[i] * x[i]
	}
	for i := range x {
		x[i] *= math.Sqrt(float64(len(x)) / square)
	}
}

// attention mixes the rows of all heads.
func (r *rebuilt) attention(name string, x [][]float64) [][]float64 {
	d, heads, kv := r.c.Width/r.c.Heads, r.c.Heads, r.c.KVHeads
	if kv == 0 {
		kv = heads
	}
	var q, k, v [][]float64
	for t := range x {
		q, k, v = append(q, r.linear(name+".q_proj", x[t])), append(k, r.linear(name+".k_proj", x[t])), append(v, r.linear(name+".v_proj", x[t]))
		for i, rows := range [][]float64{q[t], k[t]} {
			for h := range []int{heads, kv}[i] {
				row := rows[h*d:][:d]
				if r.c.Mechanism == "fastmax" {
					standard(row)
				}
				if r.c.Positions == Rotary {
					r.rotate(row, t)
				}
			}
		}
	}
	y := make([][]float64, len(x))
	for t := range x {
		o := make([]float64, heads*d)
		for h := range heads {
			g, sum := h/(heads/kv), 0.0
			for j := range t + 1 {
				s := 0.0
				for c := range d {
					s += q[t][h*d+c] * k[j][g*d+c]
				}
				weight := 1 + s + s*s/2 // fastmax of order 2
				if r.c.Mechanism == "softmax" {
					weight = math.Exp(s / math.Sqrt(float64(d)))
				}
				sum += weight
				for c := range d {
					o[h*d+c] += weight * v[j][g*d+c]
				}
			}
			for c := range d {
				o[h*d+c] /= sum
			}
		}
		y[t] = r.linear(name+".o_proj", o)
	}
	return y
}

// mlp is down(f(up(x))), or down(f(gate(x))∘up(x)).
func (r *rebuilt) mlp(name string, x [][]float64) [][]float64 {
	y := make([][]float64, len(x))
	for t := range x {
		u := r.linear(name+".up_proj", x[t])
		var up []float64
		if r.c.Activation == SwiGLU || r.c.Activation == GEGLU {
			up, u = u, r.linear(name+".gate_proj", x[t])
		}
		for i, v := range u {
			switch r.c.Activation {
			case ReLU:
				u[i] = max(v, 0)
			case SiLU, SwiGLU:
				u[i] = v / (1 + math.Exp(-v))
			case GELU, GEGLU:
				u[i] = v * math.Erfc(-v/math.Sqrt2) / 2
			default:
				u[i] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
		}
		for i, v := range up {
			u[i] *= v
		}
		y[t] = r.linear(name+".down_proj", u)
	}
	return y
}

// logits returns the logits of all positions.
func (r *rebuilt) logits(tokens []int32) (all []float64) {
	w := r.c.Width
	x := make([][]float64, len(tokens))
	for t, token := range tokens {
		x[t] = append(x[t], r.w["embed.weight"][int(token)*w:][:w]...)
		for i := range w {
			switch r.c.Positions {
			case Learned:
				x[t][i] += r.w["position.weight"][t*w+i]
			case Sinusoidal:
				angle := float64(t) * math.Pow(10000, -2*float64(i/2)/float64(w))
				x[t][i] += 0.02 * math.Sqrt2 * []float64{math.Sin(angle), math.Cos(angle)}[i%2]
			}
		}
	}
	block := func(norm, conv string, f func([][]float64) [][]float64) {
		y := x
		if !r.c.PostNorm {
			y = make([][]float64, len(x))
			for t := range x {
				y[t] = r.norm(norm, x[t])
			}
		}
		add := f(r.conv(conv, y))
		for t := range x {
			sum := make([]float64, w)
			for i := range sum {
				sum[i] = x[t][i] + add[t][i]
			}
			if r.c.PostNorm {
				sum = r.norm(norm, sum)
			}
			x[t] = sum
		}
	}
	for i := range r.c.Layers {
		layer := "layers." + string(rune('0'+i)) + "."
		block(layer+"attn_norm", layer+"attn_conv", func(y [][]float64) [][]float64 { return r.attention(layer+"attn", y) })
		block(layer+"mlp_norm", layer+"mlp_conv", func(y [][]float64) [][]float64 { return r.mlp(layer+"mlp", y) })
	}
	if r.c.Tied {
		r.w["head.weight"] = r.w["embed.weight"]
	}
	for t := range x {
		all = append(all, r.linear("head", r.norm("norm", x[t]))...)
	}
	return all
}

func TestForwardPassIsWhatThePageSays(t *testing.T) {
	base := Config{Kind: Decoder, Vocab: 11, Layers: 2, Heads: 4, Width: 16, Context: 12, Positions: Rotary, Mechanism: "softmax"}
	for name, change := range map[string]func(*Config){
		"rope, softmax":          func(*Config) {},
		"fastmax":                func(c *Config) { c.Mechanism, c.RopeTheta = "fastmax", 500 },
		"learned, bias, tied":    func(c *Config) { c.Positions, c.Bias, c.Tied = Learned, true, true },
		"sinusoidal, conv, relu": func(c *Config) { c.Positions, c.Conv, c.Activation = Sinusoidal, 3, ReLU },
		"shared keys, exact":     func(c *Config) { c.KVHeads, c.Activation, c.Hidden = 2, GELU, 24 },
		"silu":                   func(c *Config) { c.Activation, c.Norm = SiLU, LayerNorm },
		"llama":                  func(c *Config) { c.KVHeads, c.Norm, c.Activation = 2, RMSNorm, SwiGLU },
		"geglu with biases":      func(c *Config) { c.Norm, c.Activation, c.Bias = RMSNorm, GEGLU, true },
		"post-norm":              func(c *Config) { c.PostNorm, c.Positions, c.Bias = true, NoPosition, true },
	} {
		c := base
		change(&c)
		m, err := New(c, rng.New(5))
		if err != nil {
			t.Fatal(name, err)
		}
		r := &rebuilt{c: m.Config(), w: map[string][]float64{}}
		for i, p := range m.Params().All() {
			key := rng.New(uint64(100 + i))
			for j := range p.Data { // far from the first weights
				p.Data[j] += 0.3 * key.Normal(uint64(j))
			}
			r.w[p.Name] = p.Data
		}
		tokens := []int32{3, 0, 10, 7, 7, 1, 9, 2}
		got := make([]float64, len(tokens)*c.Vocab)
		if err := m.Logits(t.Context(), &Batch{B: 1, N: len(tokens), Tokens: tokens}, got); err != nil {
			t.Fatal(name, err)
		}
		for i, want := range r.logits(tokens) {
			if math.Abs(got[i]-want) > 1e-9*(1+math.Abs(want)) {
				t.Errorf("%s: logit %d of token %d is %.12g, the page gives %.12g", name, i%c.Vocab, i/c.Vocab, got[i], want)
				break
			}
		}
	}
}
