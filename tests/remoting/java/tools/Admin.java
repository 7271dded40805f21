package towline.remoting;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs mqadmin for each line of its input, and says behind each output that the command has ended. */
public class Admin {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream to = new PrintStream(said, true, "UTF-8");
            System.setOut(to);
            System.setErr(to);
            MQAdminStartup.main0(line.split("\t"), null);
            to.flush();
            out.print(said.toString("UTF-8"));
            out.println("\n--- ended");
            out.flush();
        }
        System.exit(0);
    }
}
