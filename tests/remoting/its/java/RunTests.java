package towline.remoting;

import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs classes of JUnit tests one after the other; prints a line for each test. */
public final class RunTests extends RunListener {
    private static final int MESSAGE = 300;
    private String failed;

    /** Ends in any case: what tests leave behind has threads. */
    public static void main(String[] names) {
        JUnitCore core = new JUnitCore();
        core.addListener(new RunTests());
        try {
            for (String name : names) {
                core.run(Class.forName("org.apache.rocketmq.test." + name));
            }
            System.out.println("test: all ran");
            System.exit(0);
        } catch (ReflectiveOperationException | LinkageError error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    @Override
    public void testStarted(Description test) {
        failed = null;
    }

    @Override
    public void testFailure(Failure failure) {
        String said = String.valueOf(failure.getException()).lines().findFirst().orElse("");
        failed = said.substring(0, Math.min(MESSAGE, said.length()));
        if (failure.getDescription().getMethodName() == null) { // of the class itself: no test of it starts
            tell(failure.getDescription(), failed);
        }
    }

    @Override
    public void testFinished(Description test) {
        tell(test, failed == null ? "passed" : failed);
    }

    @Override
    public void testIgnored(Description test) {
        tell(test, "ignored");
    }

    private static void tell(Description test, String result) {
        String name = test.getTestClass().getSimpleName();
        System.out.println("test: " + name + (test.getMethodName() == null ? "" : "." + test.getMethodName()) + ": " + result);
    }
}
