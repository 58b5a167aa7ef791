// Package headtask does the work for one key head of one sequence and the query heads that share
// it: prepared rows, the direct form in blocks, the linear form in chunks, the tiles of a
// window, decays, and the gradients of all of them. It knows no calls, states or costs.
package headtask
