package strict

import "strings"

// maxMisspelt is the length of the longest word that is compared with known ones, so that hostile
// words cost nothing.
const maxMisspelt = 64

// Nearest returns the known word that was probably meant. It differs in case only, by one letter or
// two neighbours that changed places, or by two letters if the word is longer than four. Words of
// less than four letters may differ in case only.
func Nearest(word string, known []string) (string, bool) {
	best, bestDistance := "", 3
	for _, k := range known {
		if strings.EqualFold(word, k) {
			return k, true
		}
		if len(word) > maxMisspelt || len(k) < 4 {
			continue
		}
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if isSwapped(word, k) {
			d = 1
		}
		if d < bestDistance && (d < 2 || len(k) > 4) {
			best, bestDistance = k, d
		}
	}
	return best, best != ""
}

// isSwapped reports whether two neighbours of one word have changed places in the other.
func isSwapped(a, b string) bool {
	for i := 1; i < len(a) && len(a) == len(b); i++ {
		if a[i-1] != b[i-1] {
			return a[i-1] == b[i] && a[i] == b[i-1] && a[i+1:] == b[i+1:]
		}
	}
	return false
}

// distance is the number of letters to insert, delete or change (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
