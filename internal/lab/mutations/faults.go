package mutations

// fault is a mistake on purpose: in a file, what stands there once is replaced.
type fault struct {
	file, text, new string
	what            string // what is wrong then, for the table
	pkg, test       string // the tests that must each fail: a package, and names with | between them
}

// faults is the list. Faults of kernels are in plain Go or in the assembly of AVX2; both
// are tested on every machine that runs them.
var faults = []fault{
	// Kernels.
	{
		"internal/kernel/generic.go", "min(i+1, m-1), min(i+2, m-1)", "min(i+1, m-1), min(i+1, m-1)",
		"the last row of a tile of three is the second",
		"internal/kernel", "TestBlock",
	},
	{
		"internal/kernel/vector_avx2_amd64.s",
		"\tVFMADD231PS Y8, Y10, Y0\n\tVFMADD231PS Y9, Y11, Y1\n\ndone36:",
		"\tVFMADD231PS Y8, Y10, Y0\n\ndone36:",
		"AVX2: an inner product loses the last half vector of a length that is no multiple of 16",
		"internal/kernel", "TestReductions",
	},
	{
		"internal/kernel/vector_avx2_amd64.s", "(SB)/4, $0x3f317211", "(SB)/4, $0x3f317311",
		"AVX2: a coefficient of the exponential is wrong in its sixth digit",
		"internal/kernel", "TestExpRowsAccuracy",
	},
	{
		"internal/kernel/columns.go", "dp[c] += e * x[c]", "dp[c] += a * x[c]",
		"a factor of a feature has a gradient that does not depend on the feature's",
		"internal/kernel", "TestFeatures",
	},
	{
		"internal/kernel/columns.go", "slope*float64(x[r*rs+i]))", "slope*slope*float64(x[r*rs+i]))",
		"the gradient of a normalised row keeps a part along the row",
		"internal/kernel", "TestColumns",
	},
	// The linear form.
	{
		"attention/internal/features/features.go", "float64(n) / float64(same)", "float64(n)",
		"packed features that repeat a channel count it as if its factors differed",
		"attention/internal/features", "TestFeatureProductsAreTheKernel",
	},
	{
		"attention/internal/headtask/chunk_scan_grad.go", "u.Table.Scale(w, -1, w)", "u.Table.Scale(w, 1, w)",
		"the gradient of the denominator has the wrong sign",
		"attention", "TestLinearGradientsAreDerivatives",
	},
	{
		"attention/internal/headtask/chunk_scan.go", "s.AnswerQueries(i0, i1, i0+u.Offset-pos)", "s.AnswerQueries(i0, i1, i0+u.Offset-pos+1)",
		"in chunks, a query sees the key after its own",
		"attention", "TestLinearAgainstTextbook",
	},
	{
		"attention/internal/hybrid/window_around.go", "s.M - s.N - s.Offset - width", "s.M - s.N - s.Offset - width + 1",
		"the sweep over the reversed sequence also sums the last key of the window",
		"attention", "TestUnmaskedWindowKnowsNoDirection",
	},
	{
		"attention/internal/headtask/two_sided.go", "keys := i0 + u.Offset - u.width + 1", "keys := i0 + u.Offset - u.width + 2",
		"on the left of a window a query sees a chunk whose last key is near",
		"attention", "TestFormsOfUnmaskedWindowsAgree",
	},
	{
		"attention/internal/headtask/two_sided_sums.go", "for k1 > end {", "for k1 > end+1 {",
		"the sum of the parts after a stretch of readers lacks the first",
		"attention", "TestFormsOfUnmaskedWindowsAgree",
	},
	{
		"attention/internal/headtask/band.go", "end = i + u.Offset + 1", "end = min(i+u.Offset+1, u.M)",
		"near the last key the window of an unmasked call grows to the left",
		"attention", "TestUnmaskedWindowKnowsNoDirection",
	},
	{
		"attention/internal/headtask/chunk_scan.go", "s.X[s.Count] = 0\n\tif exists", "s.X[s.Count] = 1\n\tif exists",
		"a masked key enters the sums",
		"attention", "TestLinearAgainstTextbook",
	},
	{
		"attention/internal/contract/call.go", "Offset: keys - n}", "Offset: m - n}",
		"with key lengths, queries stand at other places",
		"attention", "TestDirectAgainstTextbook|TestLinearAgainstTextbook",
	},
	{
		"attention/internal/contract/call.go", "add(0, q0, q1-q0, k0, k1-k0, k1-k0)", "add(0, q0, q1-q0, 0, k1-k0, k1-k0)",
		"packed sequences attend to the keys of the first",
		"attention", "TestDirectAgainstTextbook|TestLinearAgainstTextbook",
	},
	// The direct form.
	{
		"attention/internal/headtask/direct.go", "b.mask = u.Mask[j0:][:nk]", "b.mask = u.Mask[:nk]",
		"every block of keys has the mask of the first",
		"attention", "TestDirectAgainstTextbook",
	},
	{
		"attention/internal/headtask/block.go", "den[r0+r] *= fade\n", "",
		"the denominator of softmax is not rescaled with its maximum",
		"attention", "TestSoftmaxOfGrowingLogits",
	},
	{
		"attention/internal/headtask/block.go", "c[l-1] = T(float64(l) * u.Spec.Coef[l])", "c[l-1] = T(u.Spec.Coef[l])",
		"the derivative of the polynomial lacks its factors",
		"attention", "TestDirectGradientsAreDerivatives",
	},
	{
		"attention/internal/headtask/block.go", "b.maskRow(dw[r*ld:][:cols], r0+r, 0)\n", "",
		"hidden pairs have a gradient",
		"attention", "TestDirectGradientsAreDerivatives",
	},
	// Code that both forms share.
	{
		"attention/internal/spec/spec.go", "lo, hi = hi, lo\n", "",
		"gradients of rotated rows are turned on, not back",
		"attention", "TestDirectGradientsAreDerivatives|TestLinearGradientsAreDerivatives",
	},
	{
		"attention/internal/headtask/chunk_scan.go", "w[j] = T(s.Decays.SumBetween(j, s.Count-1))", "w[j] = T(s.Decays.SumBetween(-1, s.Count-1))",
		"keys lose the decay of a whole chunk when it closes",
		"attention", "TestDecayPieces",
	},
	{
		"attention/internal/headtask/log_decay.go", "lo += (hi - (sum - part)) + (a.Pending - part)\n", "_ = part\n",
		"what rounding leaves out of sums of log_g is lost",
		"attention", "TestSumsOfLogGKeepWhatRoundingLeavesOut",
	},
	{
		"attention/internal/headtask/head_task.go", "< most*seen/1024", "< most*seen/2048",
		"rows count as ill-conditioned from half of the documented limit",
		"mechanism", "TestIllConditionedRowsBeginAtTheDocumentedLimit",
	},
	{
		"attention/internal/rowscale/power.go", "if math.Abs(y) >= farPower {", "if math.Abs(y) >= 1e300 {",
		"scores beyond 2^31 are weighed over a rounded power",
		"mechanism", "TestSoftmaxOfLargeScoresIsTheMeanOfTheLargest",
	},
	{
		"attention/internal/engine/step_token.go", "room = arena.Take[T](ar, d)\n", "room = r.x[i0*r.ld:][:d]\n",
		"a token with fewer features than channels is mapped in the room of its features",
		"mechanism", "TestOneTokenNeedsNoMoreFeaturesThanItHas",
	},
	{
		"attention/internal/spec/spec.go", "keptFactor: 1 / (1 - d.Rate)", "keptFactor: 1",
		"what dropout keeps is not divided by the share that it keeps",
		"attention", "TestDropoutAgainstTextbook",
	},
	// States.
	{
		"attention/internal/headtask/chunk_scan.go", "s.Count, s.hasMasked, s.First = from.Count, from.hasMasked, from.First", "s.Count, s.hasMasked = from.Count, from.hasMasked",
		"a copy of a state forgets where its first key is",
		"attention", "TestSumsCloneAndReset",
	},
	{
		"attention/internal/engine/merge.go", "s.TokenCount += n.TokenCount", "s.TokenCount = n.TokenCount",
		"a merged state counts the tokens of one part",
		"attention", "TestDecayMerge",
	},
	{
		"attention/internal/features/features.go", "p *= x[i]", "p = x[i]",
		"a single token's features of degree 4 lack a factor",
		"attention/internal/features", "TestFeatureProductsAreTheKernel",
	},
	{
		"internal/snapshot/snapshot.go", "Uint32(end); got != want {", "Uint32(end); false && got != want {",
		"the checksum of a saved state is not looked at",
		"attention", "TestSnapshotDamage",
	},
	{
		"attention/internal/headtask/ordered_scan.go", "if before {\n\t\t\t\tcopy(tmp, s)\n\t\t\t}\n", "",
		"a team's chunks read sums that have not what came before them",
		"attention", "TestTeamOnProblems|TestTeamOnLongSequences",
	},
	// Layers, training and models.
	{
		"nn/conv.go", "past[i/n*(k-1)*w+(k-1+at-j)*w:]", "past[i/n*(k-1)*w+(k-1-j)*w:]",
		"a convolution that goes on takes the wrong rows of before",
		"nn", "TestConvIsItsDefinition",
	},
	{
		"nn/loss.go", "row[f.targets[i]] -= f.scale", "row[f.targets[i]] -= 1",
		"the gradient of the loss is not of its mean",
		"nn", "TestCrossEntropy",
	},
	{
		"optim/adamw.go", "Correct1: correct(a.Beta1), Correct2: correct(a.Beta2)", "Correct1: correct(a.Beta1), Correct2: correct(a.Beta1)",
		"AdamW corrects the mean square as it does the mean",
		"optim", "TestAdamWIsTheAlgorithm",
	},
	{
		"optim/clip.go", "return limit / norm", "return norm / limit",
		"clipping enlarges gradients",
		"optim", "TestGradNormAndClip",
	},
	{
		"model/step.go", "p.ropes[part].fill(f, s.tokens, n)", "p.ropes[part].fill(f, 0, n)",
		"every piece of a text is rotated as if it were the first",
		"model", "TestStepIsTheSequence",
	},
	{
		"generate/sampler.go", "return j + 1, part", "return j, part",
		"top-p leaves out the token that completes the share",
		"generate", "TestTokensFollowTheLimitedDistribution",
	},
	// Files.
	{
		"train/update.go", "math.IsNaN(x) || math.IsInf(x, 0)", "math.IsNaN(x)",
		"a gradient of infinite norm is stepped by",
		"train", "TestInfiniteGradientEndsTheRun",
	},
	{
		"train/update.go", "if counted == 0 {", "if counted < 0 {",
		"an update with nothing asked is stepped by",
		"train", "TestUpdateWithoutTargetsEndsTheRun",
	},
	{
		"train/best.go", "s.Loss >= b.Loss", "s.Loss <= b.Loss",
		"of equal scores the one with more loss is kept as best",
		"train", "TestOfEqualScoresLessLossIsBest",
	},
	{
		"model/stack.go", "if err := tr.in.contextErr(); err != nil {\n\t\t\treturn err\n", "if err := tr.in.contextErr(); err != nil && false {\n\t\t\treturn err\n",
		"an interrupt waits for the whole backward pass",
		"train", "TestUpdateEndsBetweenBlocks",
	},
	{
		"train/resume.go", "return lock.LockFolder(dir)", "return nil, nil",
		"two processes resume one run",
		"train", "TestRunHasOneOwner",
	},
	{
		"train/history.go", "got != want {", "got == want && false {",
		"a damaged row of the metrics is taken as it is",
		"train", "TestRowsHaveChecksums",
	},
	{
		"internal/atomicfile/atomicfile.go", "\tremoveOrphans(dir)\n", "",
		"temporary files of killed writers stay",
		"internal/atomicfile", "TestKilledWritersLeaveOneFileAtMost",
	},
	{
		"internal/lock/lock.go", "return err == nil && ok && leadsTo(name, f) && os.Remove(name) == nil", "return (ok || err == nil) && leadsTo(name, f) && os.Remove(name) == nil",
		"the temporary file of a live writer is removed",
		"internal/atomicfile", "TestWritersLeaveEachOtherAlone",
	},
	// The command.
	{
		"internal/cli/program/signals.go", "signal.Notify(signals, os.Interrupt, syscall.SIGTERM)", "signal.Notify(signals, os.Interrupt)",
		"SIGTERM ends a training without a checkpoint",
		"cmd/farfield", "TestSignalsSaveTheRun",
	},
	{
		"internal/cli/program/signals.go", "signal.Notify(signals, syscall.SIGHUP)", "_ = signals",
		"SIGHUP ends a training without a checkpoint",
		"cmd/farfield", "TestSignalsSaveTheRun",
	},
	{
		"internal/cli/program/program.go", "text, status = how.Text, env.StatusInterrupted", "text = how.Text",
		"an interrupted training has status 1",
		"cmd/farfield", "TestSignalsSaveTheRun",
	},
	{
		"internal/cli/program/program.go", "if status == 0 && out.err != nil {", "if status < 0 {",
		"results that cannot be written are a success",
		"cmd/farfield", "TestResultsThatCannotBeWrittenAreAFailure",
	},
	{
		"train/checkpoint.go", "h := sha256.New()\n\tn, err := io.Copy(h, f)", "h := sha256.New()\n\tn, err := io.Copy(io.Discard, f)",
		"the checksum of a checkpoint's files is the checksum of no bytes",
		"train", "TestDamagedCheckpointIsRefused",
	},
	{
		"internal/framed/framed.go", "!bytes.Equal(sum[:], data[end:])", "false && sum[0] == 0",
		"the checksum of a saved session is not looked at",
		"internal/framed", "TestDamageIsRefused",
	},
	{
		"comm/tree.go", "if lo > 0 {\n\t\t\tsize = min(size, lo&-lo)\n\t\t}\n", "",
		"which gradients are added first depends on the ranks",
		"comm", "TestTreeSumDependsOnTheNumberOfLeavesAlone",
	},
	// Random streams.
	{
		"rng/rng.go", "k.stream, 1}", "0, 1}",
		"Fold forgets the stream that it folds",
		"rng", "TestFoldDependsOnEveryWord",
	},
	{
		"rng/rng.go", "k.stream, 2}", "0, 2}",
		"normal numbers are the same in every stream of a key",
		"rng", "TestNumbersDependOnEveryWord",
	},
	{
		"rng/rng.go", "func (k Key) Uint64(i uint64) uint64 {\n\tx := philox4x32([4]uint32{uint32(i), uint32(i >> 32)", "func (k Key) Uint64(i uint64) uint64 {\n\tx := philox4x32([4]uint32{uint32(i), 0",
		"numbers repeat after 2³²",
		"rng", "TestNumbersDependOnEveryWord",
	},
	{
		"rng/permute.go", "k.Uint64(right*permuteRounds+round)", "k.Uint64(right*permuteRounds+0*round)",
		"all rounds of a permutation have the same function",
		"rng", "TestPermuteIsUniform",
	},
	// The trainer.
	{
		"train/update.go", "t.tree.AddLeaf(t.flatGrads)\n\t\tparams.ZeroGrad()", "t.tree.AddLeaf(t.flatGrads)",
		"the gradient of a pass stays for the next pass",
		"train", "TestAccumulatedUpdateEqualsOneBatch",
	},
	{
		"train/update.go", "share := float64(b.counted) / float64(counted)", "share := 1 / float64(len(t.batches))",
		"passes have equal shares of an update, whatever they ask",
		"train", "TestAccumulatedUpdateEqualsOneBatch",
	},
	{
		"train/best.go", "b.EvalsSince >= patience", "b.EvalsSince > patience",
		"patience lasts for one look more",
		"train", "TestBestIsJudged",
	},
	{
		"train/checkpoint.go", "keep[before] = true", "_ = before",
		"the checkpoint before the latest is removed",
		"train", "TestRunContinuesFromAnEarlierCheckpoint",
	},
	{
		"train/optim.go", "secondMoment+p.Name, p.Shape, moment.V", "firstMoment+p.Name, p.Shape, moment.V",
		"a run continues with the means in the place of the mean squares",
		"train", "TestResumedRunIsTheSame|TestTasksResumeToTheSameBits",
	},
	{
		"train/batch.go", "b.Targets = appendRepeated(append(b.Targets, x.Labels...), padding, -1)", "b.Targets = appendRepeated(append(b.Targets, x.Labels...), padding, 0)",
		"padding has labels that are asked for",
		"train", "TestBatchIsPaddedToItsLongestSequence",
	},
	// The sampler.
	{
		"generate/sampler.go", "- most) / s.settings.Temperature)", "- most) * s.settings.Temperature)",
		"a high temperature prefers likely tokens",
		"generate", "TestTokensFollowTheLimitedDistribution",
	},
	{
		"generate/generate.go", "g.tokensDrawn++\n", "",
		"every token of a text is drawn with the same number of the seed",
		"generate", "TestTokensAreDrawnWithNumbersOfTheirOwn",
	},
	{
		"generate/snapshot.go", "g.pending, g.tokensDrawn = s.Pending, s.TokensDrawn", "g.pending = s.Pending",
		"a saved text continues with the numbers of its beginning",
		"generate", "TestSnapshotContinuesTheText",
	},
	{
		"generate/generate.go", "pending: slices.Clone(g.pending), tokensDrawn", "pending: slices.Clip(g.pending), tokensDrawn",
		"a copy of a text shares the tokens that wait",
		"generate", "TestCloneGoesItsOwnWay",
	},
	// Diagnosis.
	{
		"attention/internal/engine/diagnose.go", "r.log = fade * (r.log + (r.top-s)*r.Size)", "r.log = fade * r.log",
		"the entropy of growing scores keeps logarithms over the old maximum",
		"mechanism", "TestLaws/diagnosis",
	},
	{
		"attention/internal/engine/diagnose.go", "one.Condition = r.Size / math.Abs(one.MinDen)", "one.Condition = r.Size / math.Abs(r.Sum)",
		"the condition of a row leaves out eps",
		"mechanism", "TestLaws/diagnosis",
	},
	{
		"attention/internal/engine/diagnose.go", "Merge(&p.Found, p.Sequence.Q0, e.Spec.Exp)", "Merge(&p.Found, 0, e.Spec.Exp)",
		"queries of packed sequences are counted from their own first",
		"mechanism", "TestLaws/diagnosis",
	},
	{
		"attention/internal/engine/locality.go", "p * math.Abs(float64(j-place-r))", "p * math.Abs(float64(j-r))",
		"distances are from the number of the row, not from its place",
		"attention", "TestLocate",
	},
	// Readers.
	{
		"array/npy.go", "fortran && len(shape) > 1", "false && len(shape) > 1",
		"arrays in Fortran order are read as if in C order",
		"array", "TestReadNPYRefuses",
	},
	{
		"array/npz.go", "int64(n) * int64(t.Size()); size > f.Limit", "int64(n); size > f.Limit",
		"the limit of an array counts elements, not bytes",
		"array", "TestNPZLimit",
	},
	{
		"safetensors/safetensors.go", "if t.start != end {", "if t.start < end {",
		"bytes between tensors are passed over",
		"safetensors", "TestRefuses",
	},
	{
		"dataset/wav.go", "(float32(b[0]) - 128) / 128", "float32(int8(b[0])) / 128",
		"sounds of 8 bits are read as signed",
		"dataset", "TestWAVFormatsGiveTheSameSamples",
	},
	{
		"dataset/fasta.go", "last.Bases = append(last.Bases, line...)", "last.Bases = append(last.Bases[:0], line...)",
		"a sequence is its last line",
		"dataset", "TestFASTARecordsAreReadOrRefused",
	},
	{
		"token/file.go", "r <= chars[i-1]", "r < chars[i-1]",
		"a vocabulary has a character twice",
		"token", "TestLoadRefusesDamagedVocabularies",
	},
	{
		"token/writer.go", "w.pending = w.pending[:copy(w.pending, rest)]", "w.pending = w.pending[:0]",
		"the beginning of a character is lost between two writes",
		"token", "TestWriterPassesWholeCharacters",
	},
	{
		"task/padding.go", "s.Cut = length\n", "",
		"the second of a padded pair begins where it did without padding",
		"task", "TestPadExtendsSamplesWithoutLabels",
	},
	{
		"task/folder.go", "rng.New(seed).Fold(3)", "rng.New(0).Fold(3)",
		"parts of a data set do not depend on the seed",
		"task", "TestSplitDependsOnSeedAndPlace",
	},
}
