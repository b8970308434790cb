package csit

import (
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/python"
)

// The results of a case.
const (
	passed  = "PASS"
	failed  = "FAIL"
	skipped = "SKIP"
)

// result is the result of a case in Robot Framework's output file.
type result struct {
	Suite  string   `xml:"-"`
	Name   string   `xml:"name,attr"`
	Tags   []string `xml:"tag"`
	Status struct {
		Value   string `xml:"status,attr"`
		Message string `xml:",chardata"`
	} `xml:"status"`
}

// unexpected matches the message of the suites about an answer with an unexpected status.
var unexpected = regexp.MustCompile(`Url: https?://[^/]+(\S+) Expected status: (\d+) != (\d+)`)

// brief returns the reason why a case failed, in one line.
func (r result) brief() string {
	line, _, _ := strings.Cut(strings.TrimSpace(r.Status.Message), "\n")
	if _, last, found := strings.Cut(line, "The last error was: "); found {
		line = last
	}
	return unexpected.ReplaceAllString(line, "$1: $2, not $3")
}

type suite struct {
	Name   string   `xml:"name,attr"`
	Suites []suite  `xml:"suite"`
	Cases  []result `xml:"test"`
}

func (s suite) all() []result {
	var all []result
	for _, c := range s.Cases {
		c.Suite = s.Name
		all = append(all, c)
	}
	for _, below := range s.Suites {
		all = append(all, below.all()...)
	}
	return all
}

// mostFailures is the largest number of failed cases that Robot Framework returns as its exit
// status. A larger exit status means that it did not run the cases.
const mostFailures = 250

// robot runs the suites with variables and options, and returns the results of the cases.
// The log and the report are in the folder of go test -artifacts.
func robot(t *testing.T, variables map[string]string, options ...string) []result {
	t.Helper()
	venv, err := python.Venv(t.Context(), t.Output(), "requirements.txt")
	require.NoError(t, err)
	args := []string{"--outputdir", t.ArtifactDir(), "--console", "dotted", "--consolecolors", "off"}
	for name, value := range variables {
		args = append(args, "--variable", name+":"+value)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "robot"), append(append(args, options...), "suites")...)
	cmd.Env = append(python.Environ(), "NO_PROXY=*")
	cmd.Stdout = t.Output()
	cmd.Stderr = cmd.Stdout
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() <= mostFailures {
		err = nil
	}
	require.NoError(t, err)
	return results(t, filepath.Join(t.ArtifactDir(), "output.xml"))
}

func results(t *testing.T, path string) []result {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var output struct {
		Top suite `xml:"suite"`
	}
	require.NoError(t, xml.Unmarshal(text, &output))
	all := output.Top.all()
	require.NotEmpty(t, all)
	return all
}
