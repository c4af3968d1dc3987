package docker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// instruction is one instruction of a Dockerfile, with its continuation lines.
type instruction struct {
	name  string            // in capitals
	flags map[string]string // --from=build is from: build
	args  []string
}

// stage is what one FROM starts.
type stage struct {
	name, base   string
	instructions []instruction
}

// parseDockerfile reads the part of the format that the project uses.
func parseDockerfile(text string) ([]stage, error) {
	var stages []stage
	for _, line := range logicalLines(text) {
		in, err := parseInstruction(line)
		switch {
		case err != nil:
			return nil, err
		case in.name == "FROM" && len(in.args) == 3 && strings.EqualFold(in.args[1], "as"):
			stages = append(stages, stage{base: in.args[0], name: in.args[2]})
		case in.name == "FROM":
			return nil, fmt.Errorf("%q: want FROM image AS name", line)
		case len(stages) == 0:
			return nil, fmt.Errorf("%q stands before the first FROM", line)
		default:
			last := &stages[len(stages)-1]
			last.instructions = append(last.instructions, in)
		}
	}
	return stages, nil
}

// logicalLines drops comments and joins lines that end in a backslash.
func logicalLines(text string) (lines []string) {
	var open strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part, more := strings.CutSuffix(line, `\`)
		open.WriteString(part)
		if !more {
			lines = append(lines, open.String())
			open.Reset()
		}
	}
	if open.Len() > 0 {
		lines = append(lines, open.String())
	}
	return lines
}

func parseInstruction(line string) (instruction, error) {
	name, rest, _ := strings.Cut(line, " ")
	in := instruction{name: strings.ToUpper(name), flags: map[string]string{}}
	if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
		if err := json.Unmarshal([]byte(rest), &in.args); err != nil {
			return in, fmt.Errorf("%q: %w", line, err)
		}
		return in, nil
	}
	words, err := split(rest)
	if err != nil {
		return in, fmt.Errorf("%q: %w", line, err)
	}
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		key, value, _ := strings.Cut(words[0][2:], "=")
		in.flags[key] = value
		words = words[1:]
	}
	in.args = words
	return in, nil
}

// split cuts a command line into words as a shell does; in double quotes blanks are
// part of a word. Variables stay as they are.
func split(line string) (words []string, err error) {
	var word strings.Builder
	inWord, quoted := false, false
	for _, r := range line {
		switch {
		case r == '"':
			quoted, inWord = !quoted, true
		case !quoted && (r == ' ' || r == '\t'):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed in %q", line)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// all returns the instructions of one name.
func (s stage) all(name string) (found []instruction) {
	for _, in := range s.instructions {
		if in.name == name {
			found = append(found, in)
		}
	}
	return found
}

// last returns the arguments of the instruction that counts where a later one
// replaces an earlier one, and nothing where there is none.
func (s stage) last(name string) []string {
	found := s.all(name)
	if len(found) == 0 {
		return nil
	}
	return found[len(found)-1].args
}

// pairs returns what the KEY=VALUE instructions of one name (ENV, LABEL, ARG) set.
func (s stage) pairs(name string) map[string]string {
	set := map[string]string{}
	for _, in := range s.all(name) {
		for _, arg := range in.args {
			key, value, _ := strings.Cut(arg, "=")
			set[key] = value
		}
	}
	return set
}

func findStage(stages []stage, name string) (stage, bool) {
	i := slices.IndexFunc(stages, func(s stage) bool { return s.name == name })
	if i < 0 {
		return stage{}, false
	}
	return stages[i], true
}
