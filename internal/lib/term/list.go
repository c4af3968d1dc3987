package term

import (
	"fmt"
	"strings"
)

// Joined writes values with commas between them.
func Joined[T fmt.Stringer](values []T) string { return Some(values, len(values)) }

// Some writes at most n values and how many more there are.
func Some[T fmt.Stringer](values []T, n int) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, v.String())
	}
	return Few(texts, n)
}

// Few returns the first n texts, and how many there are beside them.
func Few(texts []string, n int) string {
	if left := len(texts) - n; left > 0 {
		return fmt.Sprintf("%s,+%d", strings.Join(texts[:n], ","), left)
	}
	return strings.Join(texts, ",")
}
