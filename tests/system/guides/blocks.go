// Package guides tests that the commands shown in the README, docs/start and docs/guide work in a
// clone of the project, and parses the code blocks of such a page.
package guides

import "strings"

// Block is a fenced block of a page.
type Block struct {
	Line int    // of its first line of text, from 1
	Mark string // what is behind the opening fence: "sh", "console", "yaml", "" and so on
	Text string // with a newline at the end of each line
}

// Blocks returns the fenced blocks of a page, in their order.
func Blocks(page string) (blocks []Block) {
	open := false
	line := 0
	for l := range strings.Lines(page) {
		line++
		mark, fence := strings.CutPrefix(strings.TrimSpace(l), "```")
		switch {
		case fence && !open:
			blocks = append(blocks, Block{Line: line + 1, Mark: mark})
		case !fence && open:
			blocks[len(blocks)-1].Text += l
		}
		open = open != fence
	}
	return blocks
}

// Commands returns the command lines of a block, as a shell reads them: a line that ends in a
// backslash continues. Of a console, they are what is behind the prompt "$ ".
func (b Block) Commands() (commands []string) {
	joined := ""
	for l := range strings.Lines(b.Text) {
		l = strings.TrimRight(l, "\n")
		if b.Mark == "console" {
			var prompt bool
			if l, prompt = strings.CutPrefix(l, "$ "); !prompt {
				continue
			}
		}
		joined += l
		if strings.HasSuffix(l, `\`) {
			joined += "\n"
			continue
		}
		if strings.TrimSpace(joined) != "" {
			commands = append(commands, joined)
		}
		joined = ""
	}
	return commands
}

// Shown returns what a console shows of the answer to a command: the lines up to the next prompt.
// Of a block without prompts, and of a command of several lines, it is empty.
func (b Block) Shown(command string) string {
	_, after, ok := strings.Cut("\n"+b.Text, "\n$ "+command+"\n")
	if b.Mark != "console" || !ok {
		return ""
	}
	shown, _, more := strings.Cut("\n"+after, "\n$ ")
	if shown = strings.TrimPrefix(shown, "\n"); more && shown != "" {
		shown += "\n"
	}
	return shown
}

// IsShell reports whether a block has commands for a shell.
func (b Block) IsShell() bool {
	return b.Mark == "console" || b.Mark == "sh" || strings.HasPrefix(b.Mark, "sh ")
}
