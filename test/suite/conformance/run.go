package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

const (
	// testTimeout bounds a test, which then clears up.
	testTimeout = 12 * time.Minute
	// endTimeout is how long a test may take to clear up.
	endTimeout = 3 * time.Minute
)

// runner runs tests of a suite in a cluster, each in a process of its own: each has a
// log, and a time, and does not end with another.
type runner struct {
	suite *suite
	lab   *kubelab.Lab
	logs  string
	said  func(result) // gets each result; from one goroutine at a time

	mu sync.Mutex // of said
}

// result is how a test went.
type result struct {
	name string
	took time.Duration
	log  string
	err  error // nil: it has passed
}

// String is a row of a table.
func (r result) String() string {
	row := fmt.Sprintf("%5.0f s  %s", r.took.Seconds(), r.name)
	if r.err == nil {
		return "pass " + row
	}
	return fmt.Sprintf("FAIL %s\n              %s; log: %s", row, r.err, r.log)
}

// runAll runs tests, and returns when all have ended. It first runs the tests that may run
// concurrently, some at a time, and then the others one by one.
func (r *runner) runAll(ctx context.Context, tests []string, parallel int) []result {
	var alone, beside []string
	for _, t := range tests {
		if strings.Contains(t, "[Serial]") || strings.Contains(t, "[Disruptive]") {
			alone = append(alone, t)
		} else {
			beside = append(beside, t)
		}
	}
	return slices.Concat(r.runSome(ctx, beside, parallel), r.runSome(ctx, alone, 1))
}

// runSome runs tests, that many at a time, and returns what came of each. When ctx is
// done the rest is not run.
func (r *runner) runSome(ctx context.Context, tests []string, parallel int) []result {
	results := make([]result, len(tests))
	next := make(chan int)
	var ended sync.WaitGroup
	for range parallel {
		ended.Go(func() {
			for i := range next {
				results[i] = r.run(ctx, tests[i])
				r.say(results[i])
			}
		})
	}
	for i, t := range tests {
		select {
		case next <- i:
		case <-ctx.Done():
			results[i] = result{name: t, err: ctx.Err()}
		}
	}
	close(next)
	ended.Wait()
	return results
}

func (r *runner) say(one result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said(one)
}

// run runs a test.
func (r *runner) run(ctx context.Context, name string) result {
	one := result{name: name, log: filepath.Join(r.logs, logName(name))}
	start := time.Now()
	one.err = r.runLogged(ctx, name, one.log)
	one.took = time.Since(start)
	return one
}

func (r *runner) runLogged(ctx context.Context, name, file string) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout+endTimeout)
	defer cancel()
	log, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := r.command(ctx, name)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return verify(file)
}

// command is the suite's process for a test. It ends with this one, and those that it has
// started end with it.
func (r *runner) command(ctx context.Context, name string) *exec.Cmd {
	cmd := r.lab.Outside().Command(ctx, r.suite.binary,
		"--kubeconfig="+r.lab.Kubeconfig(), "--kubectl-path="+r.lab.Kubectl(), "--provider=skeleton",
		"--ginkgo.focus="+focus(name), "--ginkgo.timeout="+testTimeout.String(), "--ginkgo.v", "--ginkgo.no-color",
		"--e2e-output-dir="+r.logs, "--disable-log-dump")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// focus is the regular expression for one test: the suite matches it with its own title
// before the name.
func focus(name string) string { return " " + regexp.QuoteMeta(name) + "$" }

// passed is what the suite says at the end when one test was chosen and has passed.
const passed = " 1 Passed | 0 Failed"

// verify reads whether the test has passed: the suite succeeds too when a test skips
// itself, or none was chosen.
func verify(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if !strings.Contains(string(text), passed) {
		return errors.New("it has skipped itself, or the suite has no such test")
	}
	return nil
}

// unfit are the characters that are not in a log's name.
var unfit = regexp.MustCompile(`[^A-Za-z0-9]+`)

func logName(test string) string {
	return strings.Trim(unfit.ReplaceAllString(strings.TrimPrefix(test, group), "-"), "-") + ".log"
}
