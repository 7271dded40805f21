package towline.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Obeys one command for each line of standard input and answers with one line: JSON both ways.
 * Whatever a library prints goes to standard error.
 */
public final class Tool {
    private Tool() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Commands commands = (Commands) Class.forName(args[0]).getDeclaredConstructor(PrintStream.class).newInstance(answers);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer;
            try {
                answer = commands.obey(JSON.parseObject(line));
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer = Map.of("error", trace.toString());
            }
            answers.println(JSON.toJSONString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** What a program can be told to do. */
    public interface Commands {
        Map<String, Object> obey(JSONObject command) throws Exception;
    }
}
